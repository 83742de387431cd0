-- Stores a checkpoint if it supersedes what is stored: neither epoch nor sequence may go back, and one
-- must climb. The condition is in the write, so no other process can come between. No row changed means
-- refused.
INSERT INTO checkpoints (tile, epoch, seq, chain, tick, contact, sum, taken, blob)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (tile) DO UPDATE SET
    epoch = excluded.epoch, seq = excluded.seq, chain = excluded.chain, tick = excluded.tick,
    contact = excluded.contact, sum = excluded.sum, taken = excluded.taken, blob = excluded.blob
WHERE (excluded.epoch > checkpoints.epoch AND excluded.seq >= checkpoints.seq)
   OR (excluded.epoch = checkpoints.epoch AND excluded.seq > checkpoints.seq);
