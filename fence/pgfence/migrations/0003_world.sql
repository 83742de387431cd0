-- The world that the table of tiles mints epochs for. One row. Next to a table that is distributed by tile, a copy
-- of it belongs on every shard.
CREATE TABLE {world} (
    one  boolean PRIMARY KEY DEFAULT true CHECK (one),
    name text NOT NULL,
    id   uuid NOT NULL
);
INSERT INTO {world} (name, id) VALUES ('{name}', gen_random_uuid());

COMMENT ON TABLE {world} IS
    'Tilefence epoch authority: the world of the table of tiles. Its stores have recorded the id: never change it.';
