-- The families of the sessions' states that differ from the default, a row each, in JSON. `fold` of a session has the rest of its
-- state and the checksum of all; the first append after this step moves a whole state from there to here.
CREATE TABLE family (
    session TEXT NOT NULL,
    name    TEXT NOT NULL,
    data    TEXT NOT NULL,
    PRIMARY KEY (session, name)
) STRICT, WITHOUT ROWID;
