-- CRC-32 of `data`, so that a letter that changed on the disk is noticed; null for events of earlier builds.
ALTER TABLE event ADD COLUMN sum INTEGER;
