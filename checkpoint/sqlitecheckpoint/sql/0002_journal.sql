-- The epoch that may append to a tile's journal.
CREATE TABLE IF NOT EXISTS journal_seals (
    tile   TEXT    NOT NULL PRIMARY KEY, -- H3 index, lower-case hexadecimal
    sealed INTEGER NOT NULL              -- epoch, below 2^53
) STRICT;

-- The batches of write-through tiles that no checkpoint covers yet.
CREATE TABLE IF NOT EXISTS journal (
    tile      TEXT    NOT NULL,
    seq       INTEGER NOT NULL, -- below 2^53
    epoch     INTEGER NOT NULL, -- below 2^53
    chain     TEXT    NOT NULL, -- 16 hexadecimal digits
    frame     BLOB    NOT NULL, -- the entry as the stream has it
    PRIMARY KEY (tile, seq)
) STRICT, WITHOUT ROWID;
