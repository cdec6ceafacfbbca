-- Outcomes are numbered, so that the oldest can be forgotten, and know what their key stood for: a hash of the parameters,
-- empty for those of before.
CREATE TABLE outcome_2 (
    n       INTEGER NOT NULL PRIMARY KEY,
    key     TEXT    NOT NULL UNIQUE,
    session TEXT    NOT NULL,
    params  TEXT    NOT NULL,
    result  TEXT    NOT NULL,
    at      INTEGER NOT NULL
) STRICT;

INSERT INTO outcome_2 (key, session, params, result, at) SELECT key, session, '', result, at FROM outcome ORDER BY at;
DROP TABLE outcome;
ALTER TABLE outcome_2 RENAME TO outcome;
