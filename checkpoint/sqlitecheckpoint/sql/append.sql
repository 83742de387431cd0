-- Stores a journal entry if the journal is sealed for exactly its epoch, and nothing of that epoch is stored
-- at its sequence. Both conditions are in the write, so no Seal can come between. No row changed means
-- refused, or stored already.
INSERT INTO journal (tile, seq, epoch, chain, frame)
SELECT ?1, ?2, ?3, ?4, ?5 FROM journal_seals WHERE tile = ?1 AND sealed = ?3
ON CONFLICT (tile, seq) DO UPDATE SET
    epoch = excluded.epoch, chain = excluded.chain, frame = excluded.frame
WHERE excluded.epoch > journal.epoch;
