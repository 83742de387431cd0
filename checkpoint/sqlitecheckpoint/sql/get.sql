SELECT tile, epoch, seq, chain, tick, contact, sum, taken, length(blob), CASE WHEN ?2 THEN blob END
FROM checkpoints WHERE tile = ?1;
