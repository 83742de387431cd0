-- Seals a tile's journal for an epoch, unless it is sealed for a higher one. No row changed means refused.
INSERT INTO journal_seals (tile, sealed) VALUES (?1, ?2)
ON CONFLICT (tile) DO UPDATE SET sealed = excluded.sealed WHERE excluded.sealed >= journal_seals.sealed;
