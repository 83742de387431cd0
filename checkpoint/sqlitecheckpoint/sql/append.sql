-- Stores an entry, in place of one of a lower epoch. Its transaction has moved the journal's end to it.
INSERT OR REPLACE INTO journal (tile, seq, epoch, chain, frame) VALUES (?1, ?2, ?3, ?4, ?5);
