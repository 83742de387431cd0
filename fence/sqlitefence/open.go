package sqlitefence

import (
	"context"
	"embed"
	"fmt"

	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// Memory is the path of a database in memory, private to its Authority.
const Memory = sqlitedb.Memory

// Config holds the optional settings of an Authority.
type Config struct {
	// Relaxed leaves it to the operating system when a grant reaches the disk: grants survive the end of the process,
	// but a power failure or a crash of the machine may take the last ones back.
	Relaxed bool
}

//go:embed migrations/*.sql
var migrations embed.FS

// Open opens the database file at path, creating it if there is none, and brings its tables up to date.
// The path is a file name, not a URI; Memory gives a database that lives until Close. A nil cfg means the
// defaults. Close the Authority when it is no longer used.
//
// Errors: a *fence.ArgumentError, or what went wrong with the file, in which case nothing stays open. A
// ctx that ends makes Open fail.
func Open(ctx context.Context, path string, cfg *Config) (*Authority, error) {
	db, err := sqlitedb.Open(ctx, path,
		sqlitedb.Options{Relaxed: setting.Of(cfg).Relaxed, Migrations: migrations, Newer: true})
	if err != nil {
		return nil, fmt.Errorf("sqlitefence: open %s: %w", path, err)
	}
	a := &Authority{db: db}
	a.Present = a.present
	return a, nil
}
