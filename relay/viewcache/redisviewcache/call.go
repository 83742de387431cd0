package redisviewcache

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/groupcommit"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/viewstore"
)

// Bounds of what travels together. A view of more bytes goes by itself.
const (
	pipelineCalls = 64
	pipelineBytes = 256 << 10
)

// request is one command on its way, together with others of the same moment: a storm of joins asks for many tiles at
// once, and calls that each wait for a connection and for a turn of their own are late when the processors are busy.
type request struct {
	groupcommit.Item[*request]
	*redis.Cmd
}

// NoRetry keeps the client library from sending a command a second time that may have been carried out.
func (r *request) NoRetry() bool { return true }

// call runs a function, loading the library where it is missing.
func (s *store) call(ctx context.Context, name string, tile fence.TileID, args ...any) *redis.Cmd {
	keys := keysOf(s.world, tile)
	send := func() *redis.Cmd {
		return s.do(ctx, tile, redislib.Call(ctx, "fcall", library.prefix+name, keys, args...))
	}
	cmd := send()
	if redislib.Missing(cmd.Err()) {
		if err := s.load(ctx, tile); err != nil {
			return broken(ctx, err)
		}
		cmd = send() // it did not run before
	}
	return cmd
}

// do has a command sent that concerns a tile, and returns it with its reply. Those of one group, and all if there is
// one server, share a queue.
func (s *store) do(ctx context.Context, tile fence.TileID, cmd *redis.Cmd) *redis.Cmd {
	r := &request{Cmd: cmd}
	for _, arg := range cmd.Args() {
		if b, ok := arg.([]byte); ok {
			r.Size += len(b)
		}
	}
	l := &s.queues[0]
	if _, ok := s.client.(*redis.ClusterClient); ok {
		l = &s.queues[viewstore.GroupOf(tile)]
	}
	if err := l.Do(ctx, r); err != nil {
		return broken(ctx, err) // cmd may still be under way
	}
	return cmd
}

// broken is a command that failed before it was sent, or has not come back.
func broken(ctx context.Context, err error) *redis.Cmd {
	cmd := redis.NewCmd(ctx)
	cmd.SetErr(err)
	return cmd
}

// send sends a set, which leaves in each command its reply or error.
func (s *store) send(ctx context.Context, set []*request) {
	if len(set) == 1 {
		_ = s.client.Process(ctx, set[0])
		return
	}
	cmds := make([]redis.Cmder, len(set))
	for i, r := range set {
		cmds[i] = r
	}
	pipe := s.client.Pipeline()
	_ = pipe.BatchProcess(ctx, cmds...)
	_, _ = pipe.Exec(ctx)
	for _, r := range set {
		redislib.Settle(r.Cmd)
	}
}

//go:embed views.lua
var source string

// library is the function library. Its name and those of its functions begin with the digest of its source, so that
// releases with different functions work beside each other, and none replaces another's.
var library = build(source)

type functions struct{ prefix, text string }

func build(source string) functions {
	sum := sha256.Sum256([]byte(source))
	name := "tilefence_views_" + hex.EncodeToString(sum[:4])
	return functions{name + "_", "#!lua name=" + name + "\nlocal PREFIX = '" + name + "_'\n" + source}
}

// load puts the library on the master that has a tile's group: a server that was started anew or flushed has none.
func (s *store) load(ctx context.Context, tile fence.TileID) error {
	node, err := redislib.Master(ctx, s.client, keysOf(s.world, tile)[0])
	if err != nil {
		return err
	}
	err = node.FunctionLoad(ctx, library.text).Err()
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil // another relay was faster
	}
	return err
}
