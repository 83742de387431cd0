package sqlitefence

import (
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/sqlitedb"
)

// Memory is the path of a database in memory, private to its Authority.
const Memory = sqlitedb.Memory

// Synchronous says when a grant is on the disk. The zero value stands for SynchronousFull.
type Synchronous int

const (
	// SynchronousFull puts each grant on the disk before it is returned.
	SynchronousFull Synchronous = iota + 1
	// SynchronousNormal leaves it to the operating system: grants survive the end of the process, but a
	// power failure or a crash of the machine may take the last ones back.
	SynchronousNormal
)

// Config holds the optional settings of an Authority.
type Config struct {
	// Synchronous says when a grant is on the disk; zero means SynchronousFull.
	Synchronous Synchronous

	// BusyTimeout is how long a call waits while another process writes to the file; zero means 5 s. Negative is
	// refused.
	BusyTimeout time.Duration
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
	c := setting.Of(cfg)
	if c.Synchronous < 0 || c.Synchronous > SynchronousNormal {
		return nil, &fence.ArgumentError{Field: "Synchronous", Value: int(c.Synchronous),
			Want: "SynchronousFull or SynchronousNormal"}
	}
	db, err := sqlitedb.Open(ctx, path, sqlitedb.Options{
		BusyTimeout: c.BusyTimeout, Relaxed: c.Synchronous == SynchronousNormal, Migrations: migrations, Newer: true,
	})
	if err != nil {
		return nil, fmt.Errorf("sqlitefence: open %s: %w", path, err)
	}
	a := &Authority{db: db}
	a.Present = a.present
	return a, nil
}
