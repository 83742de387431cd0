SELECT tile, epoch, seq, chain, tick, contact, sum, taken, length(blob) FROM checkpoints WHERE tile = ?1;
