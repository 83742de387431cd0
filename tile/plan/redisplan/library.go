package redisplan

import (
	"context"
	"embed"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
)

// Revision is the revision of the function library this package carries. It rises with every change of the Lua
// sources; a store that has a higher one is left alone.
const Revision = 2

// LibraryName is the name of the function library. It holds the wire contract's major version.
const LibraryName = "tilefence_plan_v1"

//go:embed lua/*.lua
var sources embed.FS

// Library is the source of the function library, as FUNCTION LOAD takes it.
func Library() string { return library.Text }

var library = redislib.New(LibraryName, Revision, "tilefence_plan_revision_v1", sources,
	"prelude", "turn", "claim", "finish", "operate")

// Load puts the function library on every master. A library of a higher revision is left in place. It is safe to run
// from many processes at once. Calls that find the library missing, on a new master, load it by themselves. It also
// refuses a server that would evict: requests, claims and usage events would go one by one.
//
// Errors: a *fence.FunctionsError names the server that cannot be used, and why; a *fence.StoreError one that could not
// be asked.
func (s *Store) Load(ctx context.Context) error {
	load := func(ctx context.Context, node *redis.Client) error {
		if err := checkEviction(ctx, node); err != nil {
			return err
		}
		return library.LoadOn(ctx, node)
	}
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, load)
	case *redis.Client:
		return load(ctx, c)
	}
	return &fence.FunctionsError{Node: "?", Detail: fmt.Sprintf("client is a %T; use a ClusterClient or a Client",
		s.client)}
}

func checkEviction(ctx context.Context, node *redis.Client) error {
	info, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return failed("load", 0, fmt.Errorf("redis %s: %w", node.Options().Addr, err))
	}
	if !strings.Contains(info, "maxmemory:0\r\n") && !strings.Contains(info, "maxmemory_policy:noeviction") {
		return &fence.FunctionsError{Node: node.Options().Addr, Detail: "it evicts keys when memory runs out, and " +
			"requests and usage events would be lost; set maxmemory-policy noeviction"}
	}
	return nil
}

// call is one invocation of a function.
type call struct {
	function string
	keys     []string
	args     []any
}

func (s *Store) command(ctx context.Context, c *call) *redis.Cmd {
	all := make([]any, 0, 3+len(c.keys)+len(c.args))
	all = append(all, "fcall", s.function+"_"+c.function+"_v1", len(c.keys))
	for _, k := range c.keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// do makes calls in one shard, in one pipeline, and loads the library where it is missing. Each has its reply or its
// error.
func (s *Store) do(ctx context.Context, calls []call) []*redis.Cmd {
	sent := s.send(ctx, calls)
	if !redislib.Missing(sent[0].Err()) {
		return sent
	}
	var node *redis.Client
	var err error
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		node, err = c.MasterForKey(ctx, calls[0].keys[0])
	case *redis.Client:
		node = c
	}
	if err == nil {
		err = library.LoadOn(ctx, node)
	}
	if err == nil {
		return s.send(ctx, calls) // none of them has run
	}
	for _, cmd := range sent {
		cmd.SetErr(err)
	}
	return sent
}

func (s *Store) send(ctx context.Context, calls []call) []*redis.Cmd {
	sent := make([]*redis.Cmd, len(calls))
	for i := range calls {
		sent[i] = s.command(ctx, &calls[i])
	}
	if len(sent) == 1 {
		_ = s.client.Process(ctx, sent[0])
		return sent
	}
	pipe := s.client.Pipeline()
	for _, cmd := range sent {
		_ = pipe.Process(ctx, cmd)
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	return sent
}

// invoke makes one call. The reply is what comes after 'ok'.
func (s *Store) invoke(ctx context.Context, op string, c call) (reply, error) {
	return read(op, 0, &c, s.do(ctx, []call{c})[0])
}
