-- Reads the transaction below which all have ended, and that from which on none has begun.
SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text FROM pg_current_snapshot() s
