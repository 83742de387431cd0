-- How often a tile was minted, when it was released, and the floor under tiles whose rows were retired.
-- Rows made before this migration: every epoch was minted once (unless a claim's floor skipped
-- some), and a released tile counts as released at the time of the migration.
ALTER TABLE {table} ADD COLUMN mints bigint NOT NULL DEFAULT 1, ADD COLUMN released_at timestamptz;
UPDATE {table} SET mints = epoch, released_at = CASE WHEN contact IS NULL THEN now() END;

COMMENT ON TABLE {table} IS
    'Tilefence epoch authority. A row is the only memory of its epoch: never lower an epoch, and remove rows only '
    'with Retire.';
COMMENT ON COLUMN {table}.mints IS 'epochs minted since the row was made; for people, no decision depends on it';
COMMENT ON COLUMN {table}.released_at IS 'when the tile was released, by this database''s clock; NULL while it is held';

-- One row. Next to a table that is distributed by tile, a copy of it belongs on every shard.
CREATE TABLE {floor} (
    one   boolean PRIMARY KEY DEFAULT true CHECK (one),
    epoch bigint NOT NULL CHECK (epoch BETWEEN 0 AND 1099511627776)
);
INSERT INTO {floor} (epoch) VALUES (0);

COMMENT ON TABLE {floor} IS
    'Tilefence epoch authority: no row of the table of tiles with an epoch above this was ever removed, and a tile '
    'without a row starts above it. Never lower it, never delete the row.';
