SELECT seq, epoch, chain, length(payload) FROM journal WHERE tile = ?1 ORDER BY seq;
