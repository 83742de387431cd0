-- Raises the floor, before rows up to an epoch are removed. ?1 the epoch.
UPDATE tilefence_floor SET epoch = max(epoch, ?1)
