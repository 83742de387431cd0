package redismatch

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/redislib"
)

// Revision is the revision of the function library. It rises with every change of the Lua sources; a server that
// has a higher one is left alone.
const Revision = 3

// LibraryName is the name of the function library.
const LibraryName = "tilefence_match_v1"

//go:embed lua/*.lua
var sources embed.FS

var library = redislib.New(LibraryName, Revision, "tilefence_match_revision_v1", sources,
	"queue", "claim", "finish", "seats", "register")

// Load puts the function library on every master, and checks that the servers do not evict keys. A library of a higher
// revision is left in place. Any number of processes may load it at once. Errors: a *fence.FunctionsError or a
// *redisfence.SettingError names the server and what to do.
func (s *Store) Load(ctx context.Context) error {
	return library.LoadOnAll(ctx, s.client, func(node *redis.Client) error {
		return &redisfence.SettingError{Node: node.Options().Addr, Setting: "maxmemory-policy", Value: "not noeviction",
			Detail: "Redis would delete tickets and seats when memory runs out; set it to noeviction"}
	})
}
