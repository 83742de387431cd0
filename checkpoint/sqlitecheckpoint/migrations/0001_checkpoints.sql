-- The latest checkpoint of each tile.
CREATE TABLE checkpoints (
    tile    TEXT    NOT NULL PRIMARY KEY, -- H3 index, lower-case hexadecimal
    epoch   INTEGER NOT NULL,             -- below 2^53
    seq     INTEGER NOT NULL,             -- below 2^53
    chain   TEXT    NOT NULL,             -- 16 hexadecimal digits: SQLite has no unsigned 64-bit integer
    tick    INTEGER NOT NULL,             -- below 2^53
    contact TEXT    NOT NULL,
    sum     TEXT    NOT NULL,             -- SHA-1 of blob, lower-case hexadecimal
    taken   INTEGER NOT NULL,             -- milliseconds since 1970, the coordination store's clock
    blob    BLOB    NOT NULL
) STRICT;
