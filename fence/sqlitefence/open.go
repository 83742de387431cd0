package sqlitefence

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/tilefence/tilefence/fence"
)

// Memory is the path of a database in memory, private to its Authority.
const Memory = ":memory:"

// DefaultBusyTimeout is Config.BusyTimeout when it is zero.
const DefaultBusyTimeout = 5 * time.Second

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

	// BusyTimeout is how long a call waits while another process writes to the file; zero means
	// DefaultBusyTimeout. Negative is refused.
	BusyTimeout time.Duration
}

func (cfg *Config) withDefaults() (Config, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.Synchronous == 0 {
		c.Synchronous = SynchronousFull
	}
	if c.BusyTimeout == 0 {
		c.BusyTimeout = DefaultBusyTimeout
	}
	switch {
	case c.Synchronous != SynchronousFull && c.Synchronous != SynchronousNormal:
		return c, &fence.ArgumentError{Field: "synchronous", Value: int(c.Synchronous), Want: "SynchronousFull or SynchronousNormal"}
	case c.BusyTimeout < 0:
		return c, &fence.ArgumentError{Field: "busy timeout", Value: c.BusyTimeout, Want: "a positive duration, or zero for 5s"}
	}
	return c, nil
}

// Open opens the database file at path, creating it if there is none, and brings its tables up to date.
// The path is a file name, not a URI; Memory gives a database that lives until Close. A nil cfg means the
// defaults. Close the Authority when it is no longer used.
//
// Errors: a *fence.ArgumentError, or what went wrong with the file, in which case nothing stays open. A
// ctx that ends makes Open fail.
func Open(ctx context.Context, path string, cfg *Config) (*Authority, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if path == "" || strings.HasPrefix(path, "file:") {
		return nil, &fence.ArgumentError{Field: "path", Value: path, Want: "a file name, or :memory:"}
	}
	pool, err := sql.Open("sqlite", dataSource(path))
	if err != nil {
		return nil, fmt.Errorf("sqlitefence: open %s: %w", path, err)
	}
	db := &database{pool: pool, busyTimeout: c.BusyTimeout, turn: make(chan struct{}, 1)}
	if err := db.prepare(ctx, c.Synchronous); err != nil {
		_ = db.close() // the first error says more
		return nil, fmt.Errorf("sqlitefence: open %s: %w", path, err)
	}
	return &Authority{db: db}, nil
}

// dataSource is the driver's name for a file: a URI, in which no byte of the path has a meaning of its
// own.
func dataSource(path string) string {
	if path == Memory {
		return path
	}
	return "file:" + strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(path)
}
