package sqlitefence

import (
	"context"
	"embed"
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// Memory is the path of a database in memory, private to its Authority.
const Memory = sqlitedb.Memory

// Config holds the optional settings of an Authority.
type Config struct {
	// World names the world that the file mints epochs for, see fence.World. Default: the one without a name.
	World string
}

//go:embed migrations/*.sql
var migrations embed.FS

// Open opens the database file at path, creating it if there is none, and brings its tables up to date.
// The path is a file name, not a URI; Memory gives a database that lives until Close. A nil cfg means the
// defaults. Close the Authority when it is no longer used.
//
// The first Open mints the identity of the world; a file from before there were worlds gets one, and the name that it
// is opened with.
//
// Errors: a *fence.ArgumentError, a *fence.WorldError if the file is that of a world with another name, or what went
// wrong with the file, in which case nothing stays open. A ctx that ends makes Open fail.
func Open(ctx context.Context, path string, cfg *Config) (*Authority, error) {
	c := setting.Of(cfg)
	if err := (fence.World{Name: c.World}).Validate(); err != nil {
		return nil, err
	}
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{Migrations: migrations, Newer: true})
	if err != nil {
		return nil, fmt.Errorf("sqlitefence: open %s: %w", path, err)
	}
	a := &authority{db: db, name: c.World}
	a.Present = a.present
	if _, err := a.World(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("sqlitefence: open %s: %w", path, err), db.Close())
	}
	return &Authority{a, a}, nil
}

// World is the world that the file mints for; see fence.Authority.
func (a *authority) World(ctx context.Context) (fence.World, error) {
	w, known, err := a.db.World(ctx)
	if err == nil && !known {
		_, err = a.db.EnterWorld(ctx, fence.World{Name: a.name, ID: fence.NewWorldID()})
		if _, lost := errors.AsType[*fence.WorldError](err); lost { // another process has minted one just now
			err = nil
		}
		if err == nil {
			w, _, err = a.db.World(ctx)
		}
	}
	if err == nil && w.Name != a.name {
		err = &fence.WorldError{Store: "the authority", Record: "table tilefence_world",
			Want: fence.World{Name: a.name}, Found: w}
	}
	if err != nil {
		return fence.World{}, err
	}
	return w, nil
}
