SELECT seq, epoch, chain, prev, tick, events, committed, rebase, payload FROM journal WHERE tile = ?1 AND seq > ?2 ORDER BY seq;
