-- The transaction that made a record; NULL for those made before this migration. The index has no entry for them, and a
-- row keeps the number for good, so that updates need no index.
ALTER TABLE {table} ADD COLUMN added xid8;
ALTER TABLE {table} ALTER COLUMN added SET DEFAULT pg_current_xact_id();
CREATE INDEX ON {table} (added, tile) WHERE added IS NOT NULL;

COMMENT ON COLUMN {table}.added IS
    'the transaction that made the row, of this database; NULL: before there was this column';
