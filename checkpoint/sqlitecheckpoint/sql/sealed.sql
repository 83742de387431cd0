-- The epoch a tile's journal is sealed for, and what is stored at a sequence, zero and '' for nothing.
SELECT coalesce((SELECT sealed FROM journal_seals WHERE tile = ?1), 0),
       coalesce((SELECT epoch FROM journal WHERE tile = ?1 AND seq = ?2), 0),
       coalesce((SELECT chain FROM journal WHERE tile = ?1 AND seq = ?2), '');
