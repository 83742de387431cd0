-- Raises the floor, before rows up to an epoch are removed. $1 the epoch.
UPDATE {floor} SET epoch = greatest(epoch, $1) RETURNING epoch
