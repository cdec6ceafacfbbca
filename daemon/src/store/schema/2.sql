-- The latest text of streams that no event has closed yet, of all sessions, in the order in which it came: a commit adds to its
-- last page, however many streams it has text of. Now and then it is joined and moved to `scratch`. What belongs to a stream
-- that an event has closed means nothing.
CREATE TABLE recent (
    n       INTEGER NOT NULL PRIMARY KEY,
    session TEXT    NOT NULL,
    stream  TEXT    NOT NULL,
    block   INTEGER NOT NULL,
    offset  INTEGER NOT NULL,
    kind    TEXT    NOT NULL,
    text    TEXT    NOT NULL
) STRICT;
