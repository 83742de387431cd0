SELECT seq, epoch, chain, frame FROM journal WHERE tile = ?1 AND seq > ?2 ORDER BY seq;
