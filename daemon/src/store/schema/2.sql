-- A blob that a session may give up: contents of files, kept so that changes can be undone. `seq` is the last event that names
-- it; null: it is kept as long as the session.
ALTER TABLE blob ADD COLUMN seq INTEGER;
