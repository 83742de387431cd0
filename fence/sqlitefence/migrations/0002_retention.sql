-- Mints of a record made before this migration: every epoch was minted once, unless Above skipped some.
ALTER TABLE tilefence_tiles ADD COLUMN mints INTEGER NOT NULL DEFAULT 1; -- epochs minted since the row was made
ALTER TABLE tilefence_tiles ADD COLUMN released_at INTEGER; -- milliseconds since 1970; NULL while held
UPDATE tilefence_tiles
SET mints = epoch, released_at = CASE WHEN contact IS NULL THEN CAST(unixepoch('subsec') * 1000 AS INTEGER) END;

-- The highest epoch of any row that was ever removed: a tile without a row starts above it. Never lower it,
-- and remove no row of tiles without raising it first.
CREATE TABLE tilefence_floor (
    one   INTEGER PRIMARY KEY CHECK (one = 1),
    epoch INTEGER NOT NULL CHECK (epoch BETWEEN 0 AND 1099511627776)
) STRICT;
INSERT INTO tilefence_floor (one, epoch) VALUES (1, 0)
