-- What a tile's journal decides by.
CREATE TABLE journals (
    tile   TEXT    NOT NULL PRIMARY KEY, -- H3 index, lower-case hexadecimal
    sealed INTEGER NOT NULL,             -- the epoch that may append, below 2^53
    end_at TEXT    NOT NULL              -- what the next entry must follow: epoch/sequence/chain
) STRICT;

-- The batches of write-through tiles that no checkpoint covers yet.
CREATE TABLE journal (
    tile      TEXT    NOT NULL,
    seq       INTEGER NOT NULL, -- below 2^53
    epoch     INTEGER NOT NULL, -- below 2^53
    chain     TEXT    NOT NULL, -- 16 hexadecimal digits
    frame     BLOB    NOT NULL, -- the entry as the stream has it
    PRIMARY KEY (tile, seq)
) STRICT, WITHOUT ROWID;
