-- One row a tile that was ever owned. A row is the only memory of its epoch: never delete one, never lower
-- an epoch.
CREATE TABLE tilefence_tiles (
    tile      INTEGER PRIMARY KEY, -- H3 index, its 64 bits as a signed number
    epoch     INTEGER NOT NULL CHECK (epoch BETWEEN 1 AND 9007199254740991),
    contact   TEXT CHECK (octet_length(contact) BETWEEN 1 AND 255), -- NULL when the tile was released
    claim     BLOB NOT NULL CHECK (length(claim) = 16), -- the UUID of the claim that minted the epoch
    minted_at INTEGER NOT NULL -- milliseconds since 1970; for people, no decision rests on it
) STRICT
