-- The admission ledger. Times are milliseconds since 1970, durations milliseconds; both written by the
-- ledger, which also bounds all numbers below 2^53.

CREATE TABLE accounts (
  owner          TEXT    NOT NULL,
  asset          TEXT    NOT NULL,
  balance        INTEGER NOT NULL CHECK (balance >= 0),
  version        INTEGER NOT NULL,
  cooldown_until INTEGER NOT NULL DEFAULT 0, -- 0: never set
  PRIMARY KEY (owner, asset)
) STRICT, WITHOUT ROWID;

CREATE TABLE artifacts (
  action_id    TEXT    NOT NULL PRIMARY KEY,
  admission_id TEXT    NOT NULL,
  fingerprint  BLOB    NOT NULL,
  actor        TEXT    NOT NULL,
  asset        TEXT    NOT NULL,
  cost         INTEGER NOT NULL,
  cooldown     INTEGER NOT NULL,
  tile         TEXT    NOT NULL,
  body         BLOB    NOT NULL,
  outcome      INTEGER NOT NULL DEFAULT 0, -- stream.Outcome; 0: open
  reason       INTEGER NOT NULL DEFAULT 0, -- admission.Reason
  refunded     INTEGER NOT NULL DEFAULT 0,
  attempts     INTEGER NOT NULL,
  attempt_id   TEXT    NOT NULL, -- of the last attempt; empty: withdrawn
  admitted_at  INTEGER NOT NULL,
  attempted_at INTEGER NOT NULL,
  resolved_at  INTEGER NOT NULL DEFAULT 0  -- 0: open
) STRICT;

-- Only open actions are in it, so it stays small however old the ledger grows.
CREATE INDEX artifacts_open ON artifacts (attempted_at) WHERE outcome = 0;

CREATE TABLE credits (
  credit_id   TEXT    NOT NULL PRIMARY KEY,
  owner      TEXT    NOT NULL,
  asset      TEXT    NOT NULL,
  amount     INTEGER NOT NULL,
  credited_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
