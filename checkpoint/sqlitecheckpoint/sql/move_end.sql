-- Moves the journal's end from the position that an entry follows to the entry, if the journal is sealed for exactly
-- its epoch. No row changed means refused, or moved already.
UPDATE journals SET end_at = ?4 WHERE tile = ?1 AND sealed = ?2 AND end_at = ?3;
