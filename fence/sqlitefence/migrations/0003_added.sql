-- When a record was made: it was the nth since this migration; NULL for those made before it. A trigger counts, so that
-- records count which a process of an earlier release makes.
ALTER TABLE tilefence_tiles ADD COLUMN added INTEGER;
CREATE INDEX tilefence_tiles_added ON tilefence_tiles (added) WHERE added IS NOT NULL;
ALTER TABLE tilefence_floor ADD COLUMN added INTEGER NOT NULL DEFAULT 0;
CREATE TRIGGER tilefence_tiles_count AFTER INSERT ON tilefence_tiles BEGIN
    UPDATE tilefence_floor SET added = added + 1;
    UPDATE tilefence_tiles SET added = (SELECT added FROM tilefence_floor) WHERE tile = new.tile;
END
