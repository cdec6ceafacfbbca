-- The log, and what is folded from it in the same transactions. Times are Unix milliseconds.

-- One row an event; `data` is the event as it goes over the wire, byte for byte.
-- `stream` names the message or the call whose deltas the event closes.
CREATE TABLE event (
    session TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    stream  TEXT,
    data    TEXT    NOT NULL,
    PRIMARY KEY (session, seq)
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX event_stream ON event (session, stream) WHERE stream IS NOT NULL;

-- The text of streams that no event has closed yet.
CREATE TABLE scratch (
    session TEXT    NOT NULL,
    stream  TEXT    NOT NULL,
    block   INTEGER NOT NULL,
    offset  INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    text    TEXT    NOT NULL,
    PRIMARY KEY (session, stream, block, offset)
) STRICT, WITHOUT ROWID;

-- The fold over each session's events: `fold` is its state in JSON, the other columns are for looking it up.
CREATE TABLE session (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    UNIQUE,
    cwd        TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    env        TEXT    NOT NULL,
    fold       TEXT    NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX session_updated ON session (updated_at);
CREATE INDEX session_cwd ON session (cwd, updated_at);

-- Every permission that was ever asked, with its decision once there is one.
CREATE TABLE permission (
    id         TEXT    NOT NULL PRIMARY KEY,
    session    TEXT    NOT NULL,
    pending    TEXT    NOT NULL,
    decision   TEXT,
    decided_by TEXT,
    decided_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX permission_pending ON permission (session) WHERE decision IS NULL;

-- What a request with an idempotency key came to.
CREATE TABLE outcome (
    key     TEXT    NOT NULL PRIMARY KEY,
    session TEXT    NOT NULL,
    result  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
