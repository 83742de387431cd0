-- Seals a tile's journal for an epoch and sets its end. The transaction has judged both.
INSERT OR REPLACE INTO journals (tile, sealed, end_at) VALUES (?1, ?2, ?3);
