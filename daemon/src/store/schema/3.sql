-- Which session uses which blob, and how many bytes it has; the bytes are in files, see `blob.rs`.
CREATE TABLE blob (
    session TEXT    NOT NULL,
    hash    TEXT    NOT NULL,
    size    INTEGER NOT NULL,
    PRIMARY KEY (session, hash)
) STRICT, WITHOUT ROWID;

CREATE INDEX blob_hash ON blob (hash, size);

-- Blobs that may have lost their last session: looked at, and deleted if so, when the writing thread has time.
CREATE TABLE stray (
    hash TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- Sessions that are no more, whose rows are deleted when the writing thread has time.
CREATE TABLE removed (
    session TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- So that what belongs to a session is found without a look at the others.
CREATE INDEX permission_session ON permission (session);
CREATE INDEX outcome_session ON outcome (session);

-- Bytes of a session's events and blobs.
ALTER TABLE session ADD COLUMN size INTEGER NOT NULL DEFAULT 0;
UPDATE session SET size = (SELECT coalesce(sum(octet_length(data)), 0) FROM event WHERE event.session = session.id);
