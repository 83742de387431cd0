-- Reads how many rows were ever made.
SELECT max(added) FROM tilefence_floor
