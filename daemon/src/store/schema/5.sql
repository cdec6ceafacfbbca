-- CRC-32 of `session`, a zero byte and `data`, so that a letter that changed on the disk is noticed, and an event that came to
-- another session; null for events of earlier builds.
ALTER TABLE event ADD COLUMN sum INTEGER;
