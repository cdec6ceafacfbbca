-- The log, and what is folded from it in the same transactions. Times are Unix milliseconds.

-- "ling": a database without it was written by a build from before the first release, or by another program.
PRAGMA application_id = 1818848871;

-- One row an event; `data` is the event as it goes over the wire, byte for byte.
-- `n` numbers the events of all sessions in the order of their commits; no number is given twice.
-- `stream` names the message or the call whose deltas the event closes.
-- `sum` is the CRC-32 of `session`, a zero byte and `data`: it tells whether the row is what was written, for this session.
CREATE TABLE event (
    n       INTEGER NOT NULL PRIMARY KEY,
    session TEXT    NOT NULL,
    seq     INTEGER NOT NULL,
    at      INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    stream  TEXT,
    data    TEXT    NOT NULL,
    sum     INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX event_seq ON event (session, seq);
CREATE UNIQUE INDEX event_stream ON event (session, stream) WHERE stream IS NOT NULL;

-- One row: the `n` of the newest event when a session was last removed, so that its numbers are not given again.
CREATE TABLE numbered (
    n INTEGER NOT NULL
) STRICT;

INSERT INTO numbered VALUES (0);

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
-- `parent` is the session that started it; `origin` and `origin_seq` are the session and the event that it goes on from.
-- `size` counts the bytes of its events and blobs.
CREATE TABLE session (
    id         TEXT    NOT NULL PRIMARY KEY,
    name       TEXT    UNIQUE,
    cwd        TEXT    NOT NULL,
    state      TEXT    NOT NULL,
    updated_at INTEGER NOT NULL,
    env        TEXT    NOT NULL,
    fold       TEXT    NOT NULL,
    size       INTEGER NOT NULL,
    parent     TEXT,
    origin     TEXT,
    origin_seq INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX session_updated ON session (updated_at);
CREATE INDEX session_cwd ON session (cwd, updated_at);

-- Every question that was ever asked: `asked` is a row of `question/list` in JSON. `answer` is null while it waits; then it is the
-- name of the option that was chosen, in JSON, or `null` in JSON if the question was withdrawn.
CREATE TABLE question (
    id          TEXT    NOT NULL PRIMARY KEY,
    session     TEXT    NOT NULL,
    asked       TEXT    NOT NULL,
    answer      TEXT,
    answered_by TEXT,
    answered_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX question_open ON question (session) WHERE answer IS NULL;
CREATE INDEX question_session ON question (session);

-- What a request with an idempotency key came to. `params` is a hash of its parameters; `n` tells which is the oldest.
CREATE TABLE outcome (
    n       INTEGER NOT NULL PRIMARY KEY,
    key     TEXT    NOT NULL UNIQUE,
    session TEXT    NOT NULL,
    params  TEXT    NOT NULL,
    result  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

CREATE INDEX outcome_session ON outcome (session);

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

-- Removed sessions, whose rows are deleted when the writing thread has time.
CREATE TABLE removed (
    session TEXT NOT NULL PRIMARY KEY
) STRICT, WITHOUT ROWID;

-- What was paid for: a row a day (days since 1970, as UTC has them), session and model. The rows of removed sessions
-- are added up under the empty name. `cost` is in millionths of a US dollar, and null while nothing is known of it;
-- `at_least` says that some of it is not known. `answers` counts those that were cut, too.
CREATE TABLE usage (
    day         INTEGER NOT NULL,
    session     TEXT    NOT NULL,
    model       TEXT    NOT NULL,
    answers     INTEGER NOT NULL,
    input       INTEGER NOT NULL,
    output      INTEGER NOT NULL,
    cached      INTEGER NOT NULL,
    cache_write INTEGER NOT NULL,
    reasoning   INTEGER NOT NULL,
    cost        INTEGER,
    at_least    INTEGER NOT NULL,
    PRIMARY KEY (day, session, model)
) STRICT, WITHOUT ROWID;

CREATE INDEX usage_session ON usage (session);
