-- One row a tile that was ever owned. Rows are updated in place and no updated column is indexed, so the
-- free space lets PostgreSQL keep each new version on the same page and leave the index alone.
CREATE TABLE {table} (
    tile      bigint PRIMARY KEY,
    epoch     bigint NOT NULL CHECK (epoch BETWEEN 1 AND 9007199254740991),
    contact   text CHECK (octet_length(contact) BETWEEN 1 AND 255),
    claim     uuid NOT NULL,
    minted_at timestamptz NOT NULL
) WITH (fillfactor = 85);

COMMENT ON TABLE {table} IS
    'Tilefence epoch authority. A row is the only memory of its epoch: never delete one, never lower an epoch.';
COMMENT ON COLUMN {table}.tile IS 'H3 index, its 64 bits as a signed number';
COMMENT ON COLUMN {table}.epoch IS 'fencing token: strictly higher with every mint';
COMMENT ON COLUMN {table}.contact IS 'the owner''s address; NULL when the tile was released';
COMMENT ON COLUMN {table}.claim IS 'the claim that minted the epoch';
COMMENT ON COLUMN {table}.minted_at IS
    'when the epoch was minted, by this database''s clock; for people, no decision depends on it';
