package redismatch

import (
	"context"
	"embed"

	"github.com/tilefence/tilefence/internal/redislib"
)

// revision is the revision of the function library. It rises with every change of the Lua sources; a server that
// has a higher one is left alone.
const revision = 4

// LibraryName is the name of the function library.
const LibraryName = "tilefence_match_v1"

//go:embed lua/*.lua
var sources embed.FS

var library = redislib.New(LibraryName, revision, "tilefence_match_revision_v1", sources,
	"queue", "claim", "finish", "seats", "register")

// Load puts the function library on every master, and checks that no server, master or replica, evicts keys. A library
// of a higher revision is left in place. Any number of processes may load it at once. Errors: a *fence.FunctionsError
// or a *fence.SettingError names the server and what to do; a *fence.StoreError one that could not be asked.
func (s *Store) Load(ctx context.Context) error { return library.LoadOnAll(ctx, s.client, s.needs()) }

// Check implements fence.Checker: what Load checks, and whether each master has Config.Replicas connected.
func (s *Store) Check(ctx context.Context) []error {
	return library.Check(ctx, s.client, s.needs(), &s.checks)
}

func (s *Store) needs() redislib.Needs {
	n := redislib.Needs{Evicted: "tickets and seats"}
	if !s.cfg.NoReplicas {
		n.Replicas = s.cfg.Replicas
	}
	return n
}
