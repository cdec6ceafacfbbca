-- Forks: the events of a session that are rows of another one. Those up to `last`, after the row before, are the events with the
-- same numbers of `source`; those after the last row are the session's own. `source` may be a session that was removed: its
-- shared events stay until the last row that names it is gone.
CREATE TABLE shared (
    session TEXT    NOT NULL,
    last    INTEGER NOT NULL,
    source  TEXT    NOT NULL,
    PRIMARY KEY (session, last)
) STRICT, WITHOUT ROWID;

CREATE INDEX shared_source ON shared (source, last);

-- The children of a session are looked for with each that is listed, removed or pruned.
CREATE INDEX session_parent ON session (parent) WHERE parent IS NOT NULL;
