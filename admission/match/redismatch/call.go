package redismatch

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/wait"
)

// errUnconfirmed: too few replicas have confirmed a write in time.
var errUnconfirmed = errors.New("not confirmed by enough replicas: attach one, or set redismatch.Config.NoReplicas")

// confirmed are the functions whose answer a caller acts on: they wait for replicas.
var confirmed = map[string]bool{"enqueue": true, "cancel": true, "record": true, "publish": true, "dissolve": true,
	"requeue": true, "hold": true, "allocate": true, "take": true}

// reading are the functions that write nothing, which a user without the right to write may call.
var reading = map[string]bool{"read": true, "open": true, "list": true, "depth": true, "tiles": true}

// call runs a function on the master of a base, and repeats it until it was run and confirmed, or for retryFor.
// The reply is without its code, which is "ok", "stale", "unknown" or another that the caller expects.
func (s *store) call(ctx context.Context, op, base string, args ...any) (code string, reply []any, err error) {
	deadline := time.Now().Add(s.retry)
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		reply, err = s.once(ctx, op, s.cfg.World.Key(base), args)
		switch {
		case err == nil && len(reply) == 0:
			return "", nil, failed(op, fmt.Errorf("unreadable reply %v", reply))
		case err == nil:
			code, _ = reply[0].(string)
			if code == "invalid" {
				return "", nil, &fence.ArgumentError{Field: fmt.Sprint(reply[1]), Value: "refused by " + op,
					Want: "see the function's source"}
			}
			return code, reply[1:], nil
		case !transient(err):
			return "", nil, failed(op, err)
		case ctx.Err() != nil || time.Now().Add(pause).After(deadline):
			return "", nil, failed(op, errors.Join(err, ctx.Err()))
		}
		if c, ok := s.client.(*redis.ClusterClient); ok {
			c.ReloadState(ctx)
		}
		wait.For(ctx, pause)
	}
}

// once runs a function once, and once more if the library was missing.
func (s *store) once(ctx context.Context, op, base string, args []any) ([]any, error) {
	if err := s.checks.Refused(); err != nil {
		return nil, err
	}
	node, err := redislib.Master(ctx, s.client, base)
	if err != nil {
		return nil, err
	}
	reply, err := s.run(ctx, node, op, base, args)
	if redislib.Missing(err) {
		if err = library.Restore(ctx, node, s.needs(), &s.checks); err == nil {
			reply, err = s.run(ctx, node, op, base, args)
		}
	}
	return reply, err
}

// run sends a function, and WAIT behind it on the same connection if its answer is to be confirmed.
func (s *store) run(ctx context.Context, node *redis.Client, op, base string, args []any) ([]any, error) {
	how := "fcall"
	if reading[op] {
		how = "fcall_ro"
	}
	function := redislib.Call(ctx, how, s.functions+op+"_v1", []string{base}, args...)
	if !confirmed[op] || s.cfg.NoReplicas {
		if err := node.Process(ctx, function); err != nil {
			return nil, err
		}
		return function.Slice()
	}
	pipe := node.Pipeline()
	_ = pipe.Process(ctx, function)
	wait := redis.NewCmd(ctx, "wait", s.cfg.Replicas, s.confirm.Milliseconds())
	_ = pipe.Process(ctx, wait)
	_, _ = pipe.Exec(ctx) // each command has its own error
	if err := function.Err(); err != nil {
		return nil, err
	}
	if n, err := wait.Int(); err != nil {
		return nil, err
	} else if n < s.cfg.Replicas {
		return nil, fmt.Errorf("%w: %d of %d", errUnconfirmed, n, s.cfg.Replicas)
	}
	return function.Slice()
}

// transient reports whether a call that failed may succeed when it is repeated: whatever is not an answer to it.
func transient(err error) bool {
	text := err.Error()
	for _, final := range []string{"ERR ", "NOPERM", "NOAUTH", "WRONGPASS", "WRONGTYPE", "OOM"} {
		if strings.HasPrefix(text, final) {
			return false
		}
	}
	return !errors.Is(err, fence.ErrFunctions) && !errors.Is(err, fence.ErrSetting)
}

func failed(op string, err error) error {
	return &fence.StoreError{Op: "match " + op, Outcome: fence.ErrUnknownOutcome, Err: err}
}

// fields reads a reply of texts; what is not there is empty.
type fields []any

func (f fields) text(i int) string {
	if i >= len(f) {
		return ""
	}
	switch v := f[i].(type) {
	case string:
		return v
	case int64:
		return strconv.FormatInt(v, 10)
	}
	return ""
}

// words are the words of a text; nil for none.
func (f fields) words(i int) []string {
	if f.text(i) == "" {
		return nil
	}
	return strings.Fields(f.text(i))
}

func (f fields) number(i int) uint64 {
	n, _ := strconv.ParseUint(f.text(i), 10, 64)
	return n
}

func (f fields) millis(i int) time.Time {
	n, err := strconv.ParseInt(f.text(i), 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.UnixMilli(n)
}

// millis is a duration for Redis: a started millisecond counts.
func millis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// revision is the revision of the function library. It rises with every change of the Lua sources; a server that
// has a higher one is left alone.
const revision = 4

// libraryName is the name of the function library.
const libraryName = "tilefence_match_v1"

//go:embed lua/*.lua
var sources embed.FS

var library = redislib.New(libraryName, revision, "tilefence_match_revision_v1", sources,
	"queue", "claim", "finish", "seats", "register")

// Load puts the function library on every master, and checks that no server, master or replica, evicts keys. A library
// of a higher revision is left in place. Any number of processes may load it at once. After a refusal the store calls
// nothing until a Load has succeeded. Errors: a *fence.FunctionsError
// or a *fence.SettingError names the server and what to do; a *fence.StoreError one that could not be asked.
func (s *Store) Load(ctx context.Context) error {
	return s.own.checks.Loaded(library.LoadOnAll(ctx, s.own.client, s.own.needs()))
}

// Check implements fence.Checker: what Load checks, and whether each master has Config.Replicas connected.
func (s *Store) Check(ctx context.Context) []error {
	return library.Check(ctx, s.own.client, s.own.needs(), &s.own.checks)
}

func (s *store) needs() redislib.Needs {
	n := redislib.Needs{Evicted: "tickets and seats"}
	if !s.cfg.NoReplicas {
		n.Replicas = s.cfg.Replicas
	}
	return n
}
