SELECT seq, epoch, chain, length(frame) FROM journal WHERE tile = ?1 ORDER BY seq;
