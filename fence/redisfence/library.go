package redisfence

import (
	"context"
	"embed"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
)

// revision is the revision of the function library this package carries. It rises with every change of
// the Lua sources; a store that has a higher one is left alone.
const revision = 14

// LibraryName is the name of the function library. It holds the wire contract's major version, so that
// two releases can run side by side.
const LibraryName = "tilefence_v1"

//go:embed lua/*.lua
var sources embed.FS

// Library is the source of the function library, as FUNCTION LOAD takes it.
func Library() string { return library.Text }

var library = redislib.New(LibraryName, revision, "tilefence_revision_v1", sources,
	"prelude", "commit", "rebase", "snapshot", "mark", "trim", "expire", "register")

// Load puts the function library on every master, and checks that all servers, masters and replicas, keep what they are
// given: that they do not evict (maxmemory-policy noeviction) and, unless Config.Persistence says what else keeps it,
// that they write an append-only file. A library of a higher revision is left in place. It is safe to run from many
// processes at once. Check looks again while the servers run; Load logs what it finds besides. With the ID of
// Config.World it does first what EnterWorld does.
//
// Errors: a *fence.WorldError if the servers belong to another world; a *fence.SettingError or a *fence.FunctionsError
// names the server that cannot be used and why; a
// *fence.StoreError says that a master could not be asked. A replica that does not answer, or that
// the cluster does not list yet, is not judged: Check does it when it is there.
//
// After a refusal the store writes nothing until a Load has succeeded: its calls end with fence.ErrNotApplied and the
// refusal. A server that a call finds without the library is judged as by Load before it is given it.
func (s *Store) Load(ctx context.Context) error {
	s.own.warnOfSlowReload()
	if err := s.own.checks.Loaded(s.load(ctx)); err != nil {
		return err
	}
	for _, wrong := range s.Check(ctx) {
		s.own.cfg.Logger.Warn("redisfence: a server is not as it must be", "error", wrong)
	}
	return nil
}

func (s *Store) load(ctx context.Context) error {
	if !s.own.cfg.World.ID.IsZero() {
		_, err := s.EnterWorld(ctx, s.own.cfg.World)
		if failed, ok := errors.AsType[*fence.StoreError](err); ok && !redislib.Unavailable(failed.Err) {
			err = failed.Err // a password or a right is missing
		}
		if err != nil {
			return err
		}
	}
	return library.LoadOnAll(ctx, s.own.client, s.own.needs())
}

// warnOfSlowReload says that a client notices a failover late. The client's own default is a minute.
func (s *store) warnOfSlowReload() {
	c, ok := s.client.(*redis.ClusterClient)
	if !ok || c.Options().ClusterStateReloadInterval <= topologyReload {
		return
	}
	s.cfg.Logger.Warn("redisfence: the client reloads the cluster's topology too rarely: after a failover it goes on "+
		"writing to the former master; make it with redisfence.Options, or set ClusterStateReloadInterval",
		"interval", c.Options().ClusterStateReloadInterval, "want", topologyReload)
}

// needs are what the store needs of its servers.
func (s *store) needs() redislib.Needs {
	n := redislib.Needs{Evicted: "owners and streams", Replicas: s.cfg.MinReplicas}
	if s.cfg.Persistence == AppendOnlyFile {
		n.AppendOnly = "a master that restarts before a replica was promoted erases what its replicas have " +
			"confirmed, and a replica may be the next master; set appendonly yes and appendfsync everysec on every node, or " +
			"say in redisfence.Config.Persistence what else keeps it"
	}
	return n
}

// Check implements fence.Checker: what Load checks, and whether each master has Config.MinReplicas connected and can
// write its append-only file. It puts the function library on masters that lack it. Commits go on, whatever it finds.
func (s *store) Check(ctx context.Context) []error {
	return library.Check(ctx, s.client, s.needs(), &s.checks)
}
