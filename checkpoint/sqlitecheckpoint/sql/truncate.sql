DELETE FROM journal WHERE tile = ?1 AND seq <= ?2;
