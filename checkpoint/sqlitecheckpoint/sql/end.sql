SELECT sealed, end_at FROM journals WHERE tile = ?1;
