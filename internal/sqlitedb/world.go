package sqlitedb

import (
	"context"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// The world that a file belongs to is a table of its own, which is no migration: releases from before there were
// worlds open the file as before.
const (
	createWorld = `CREATE TABLE IF NOT EXISTS tilefence_world (
		one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, id TEXT NOT NULL CHECK (length(id) = 32)) STRICT`
	hasWorld    = "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name = 'tilefence_world'"
	readWorld   = "SELECT name, id FROM tilefence_world"
	recordWorld = "INSERT INTO tilefence_world (one, name, id) VALUES (1, ?, ?)"
)

// World reads the world that the file belongs to. known is false if it belongs to none yet.
func (db *DB) World(ctx context.Context) (w fence.World, known bool, err error) {
	err = db.Read(ctx, "world", 0, func(tx *Tx) (err error) {
		w, known, err = tx.world()
		return err
	})
	return w, known, err
}

func (t *Tx) world() (w fence.World, known bool, err error) {
	var tables int
	if _, err := t.Row(hasWorld, nil, &tables); err != nil || tables == 0 {
		return w, false, err
	}
	var id string
	if known, err = t.Row(readWorld, nil, &w.Name, &id); err != nil || !known {
		return w, false, err
	}
	if w.ID, err = fence.ParseWorldID(id); err != nil {
		return w, false, &fence.CorruptError{What: "table tilefence_world", Detail: err.Error()}
	}
	return w, true, w.Validate()
}

// EnterWorld is that of fence.WorldKeeper: a file takes the name and the ID of the first world whose ID is known.
func (db *DB) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	if err := w.Validate(); err != nil {
		return fence.World{}, err
	}
	found, known, err := db.World(ctx)
	if err == nil && !known && !w.ID.IsZero() {
		found, known = w, true
		err = db.Write(ctx, "enter world", 0, func(tx *Tx) error {
			if _, err := tx.Exec(createWorld); err != nil {
				return err
			}
			other, known, err := tx.world() // another process may have been faster
			if known {
				found = other
			}
			if err == nil && !known {
				_, err = tx.Exec(recordWorld, w.Name, w.ID.String())
			}
			return err
		})
	}
	if err == nil && known {
		err = w.Compare("SQLite file "+db.path, fmt.Sprintf("table tilefence_world of %s", db.path), found)
	}
	if err != nil {
		return fence.World{}, err
	}
	return found, nil
}
