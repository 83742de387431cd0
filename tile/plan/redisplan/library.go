package redisplan

import (
	"context"
	"embed"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/internal/redislib"
)

// revision is the revision of the function library this package carries. It rises with every change of the Lua
// sources; a store that has a higher one is left alone.
const revision = 6

// libraryName is the name of the function library. It holds the wire contract's major version.
const libraryName = "tilefence_plan_v1"

//go:embed lua/*.lua
var sources embed.FS

var library = redislib.New(libraryName, revision, "tilefence_plan_revision_v1", sources,
	"prelude", "turn", "claim", "finish", "operate")

// Load puts the function library on every master. A library of a higher revision is left in place. It is safe to run
// from many processes at once. Calls that find the library missing, on a new master, load it by themselves. It also
// refuses a server, master or replica, that would evict: requests, claims and usage events would go one by one.
//
// Errors: a *fence.SettingError or a *fence.FunctionsError names the server that cannot be used, and why; a
// *fence.StoreError one that could not be asked.
//
// After a refusal the store calls nothing until a Load has succeeded; its calls end with the refusal.
func (s *Store) Load(ctx context.Context) error {
	return s.own.checks.Loaded(library.LoadOnAll(ctx, s.own.client, needs))
}

// Check implements fence.Checker with what Load checks.
func (s *Store) Check(ctx context.Context) []error {
	return library.Check(ctx, s.own.client, needs, &s.own.checks)
}

var needs = redislib.Needs{Evicted: "requests and usage events"}

// call is one invocation of a function.
type call struct {
	function string
	keys     []string
	args     []any
}

// do makes calls in one shard, in one pipeline, and loads the library where it is missing. Each has its reply or its
// error.
func (s *store) do(ctx context.Context, calls []call) []*redis.Cmd {
	err := s.checks.Refused()
	if err == nil {
		sent := s.send(ctx, calls)
		if !redislib.Missing(sent[0].Err()) {
			return sent
		}
		var node *redis.Client
		if node, err = redislib.Master(ctx, s.client, calls[0].keys[0]); err == nil {
			err = library.Restore(ctx, node, needs, &s.checks)
		}
	}
	if err == nil {
		return s.send(ctx, calls) // none of them has run
	}
	none := make([]*redis.Cmd, len(calls))
	for i := range none {
		none[i] = redis.NewCmd(ctx)
		none[i].SetErr(err)
	}
	return none
}

func (s *store) send(ctx context.Context, calls []call) []*redis.Cmd {
	sent := make([]*redis.Cmd, len(calls))
	for i, c := range calls {
		version := "_v1"
		if c.function == "turn" {
			version = "_v2" // an owner of before does not say what its plans have used, and is not served
		}
		sent[i] = redislib.Call(ctx, "fcall", s.function+"_"+c.function+version, c.keys, c.args...)
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
func (s *store) invoke(ctx context.Context, op string, c call) (reply, error) {
	return read(op, 0, &c, s.do(ctx, []call{c})[0])
}
