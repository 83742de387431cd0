-- Finds the tiles whose rows another transaction has locked, in order. $1 tiles. Its own locks end with it.
WITH free AS MATERIALIZED (SELECT tile FROM {table} WHERE tile = ANY ($1::bigint[]) FOR UPDATE SKIP LOCKED)
SELECT tile FROM {table} WHERE tile = ANY ($1::bigint[]) AND tile NOT IN (SELECT tile FROM free) ORDER BY tile
