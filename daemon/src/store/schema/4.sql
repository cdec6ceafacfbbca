-- Tokens: what a connection may do that has one. `hash` is the SHA-256 of its text in hexadecimal digits, which alone is kept of it;
-- `allows` is the grant in JSON. With `code_until` it is a code, which can be exchanged for a token until then.
CREATE TABLE token (
    id         TEXT    NOT NULL PRIMARY KEY,
    hash       TEXT    NOT NULL UNIQUE,
    allows     TEXT    NOT NULL,
    created_at INTEGER NOT NULL,
    used_at    INTEGER,
    code_until INTEGER
) STRICT, WITHOUT ROWID;

-- Artifacts: files that clients put here and take back. `hash` names the blob with the bytes, which `blob` has under the session
-- `artifact`, so that it is kept as long as one of them has it. `made_by` is the name of the client.
CREATE TABLE artifact (
    id           TEXT    NOT NULL PRIMARY KEY,
    name         TEXT    NOT NULL,
    content_type TEXT    NOT NULL,
    size         INTEGER NOT NULL,
    hash         TEXT    NOT NULL,
    created_at   INTEGER NOT NULL,
    made_by      TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX artifact_hash ON artifact (hash);
CREATE INDEX artifact_created ON artifact (created_at);
