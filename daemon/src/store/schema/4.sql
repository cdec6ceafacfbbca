-- What was paid for: a row a day (days since 1970, as UTC has them), session and model. The rows of sessions that were removed
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

-- What earlier builds counted has no price.
INSERT INTO usage
SELECT at / 86400000,
       iif(session IN (SELECT id FROM session), session, ''),
       coalesce(data ->> '$.model', ''),
       count(*),
       CAST(min(total(data ->> '$.usage.input_tokens'), 9e15) AS INTEGER),
       CAST(min(total(data ->> '$.usage.output_tokens'), 9e15) AS INTEGER),
       CAST(min(total(data ->> '$.usage.cached_tokens'), 9e15) AS INTEGER),
       CAST(min(total(data ->> '$.usage.cache_write_tokens'), 9e15) AS INTEGER),
       CAST(min(total(data ->> '$.usage.reasoning_tokens'), 9e15) AS INTEGER),
       NULL,
       1
FROM (SELECT at, session, iif(json_valid(data), data, '{}') AS data FROM event WHERE kind = 'message')
WHERE data ->> '$.role' = 'assistant'
GROUP BY 1, 2, 3;
