package redisfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/groupcommit"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
)

// call is one invocation of a writing function. It is one allocation, the command's arguments included.
type call struct {
	request
	op        string
	tile      fence.TileID
	epoch     fence.Epoch
	next      fence.Position // where the reply 'ok' leaves the tile
	install   bool           // it must not be answered before it is confirmed
	key       string         // one of its keys, which are all in one slot
	arguments arguments
}

// command returns a new command that makes the call.
func (c *call) command(ctx context.Context) *redis.Cmd { return functionCommand(ctx, c.arguments.list) }

// functionCommand is the command with these arguments: FCALL, the function, its keys and its arguments.
func functionCommand(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// refusals maps reply codes to the reasons of package fence.
var refusals = map[string]error{
	"stale":       fence.ErrStale,
	"replay":      fence.ErrReplay,
	"behind":      fence.ErrBehind,
	"forked":      fence.ErrForked,
	"noowner":     fence.ErrNoOwner,
	"regress":     fence.ErrRegress,
	"uncommitted": fence.ErrUncommitted,
	"checksum":    fence.ErrChecksum,
}

// request is one command on its way to a node. It is the redis.Cmder that travels, and holds its own reply.
type request struct {
	groupcommit.Item[*request]
	redis.Cmder
	replicas int // as in fence.Commit

	// Set when it was sent.
	err             error // why there is no reply, or the reply's error; a *groupcommit.NotSentError: it ran nowhere
	confirmed, want int
	detail          string // why too few replicas can confirm it
}

func sized(bytes int) groupcommit.Item[*request] { return groupcommit.Item[*request]{Size: bytes} }

// NoRetry keeps the client library from sending the command a second time by itself. What a request is
// answered is then the answer to the only time it was sent.
func (r *request) NoRetry() bool { return true }

// failed classifies an invocation that gave no reply, unless it is damage, which stays. A client that retries by itself
// shows only its last attempt, so even an error reply says nothing about an earlier one: what is not known is unknown.
func failed(op string, tile fence.TileID, err error) error {
	if errors.Is(err, fence.ErrCorrupt) {
		return err
	}
	outcome := fence.ErrUnknownOutcome
	if unsent, ok := errors.AsType[*groupcommit.NotSentError](err); ok {
		outcome, err = fence.ErrNotApplied, unsent.Err
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: outcome, Err: err}
}

// write runs a function and reads its reply.
func (s *store) write(ctx context.Context, c *call) (fence.Receipt, error) {
	if err := guard.Ended(ctx, c.op, c.tile); err != nil {
		return fence.Receipt{}, err
	}
	if err := s.checks.Refused(); err != nil {
		return fence.Receipt{}, failed(c.op, c.tile, &groupcommit.NotSentError{Err: err})
	}
	if s.cfg.Persistence == DurableLog {
		c.replicas = 0 // the answer says that the log has it
	}
	reply, err := s.invoke(ctx, c)
	if err != nil {
		err = redislib.ExplainOne(ctx, s.client, c.tile, err, c.arguments.keys()...)
		return fence.Receipt{}, failed(c.op, c.tile, err)
	}
	receipt, err := c.read(reply)
	if err != nil {
		return fence.Receipt{}, err
	}
	receipt.Replicas = c.confirmed
	if c.confirmed < c.want {
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: c.tile, Receipt: receipt, Want: c.want, Detail: c.detail}
	}
	return receipt, nil
}

// invoke sends a call to its master and returns the reply: through a queue, or by itself when it is large or queues are
// off. How many replicas have confirmed it is then in the request.
func (s *store) invoke(ctx context.Context, c *call) (reply any, err error) {
	alone := s.cfg.Unpipelined || c.Size > s.cfg.tuning.PipelineBytes
	if alone && c.replicas == 0 {
		return s.redirected(ctx, c.key, c.arguments.list)
	}
	n, err := s.nodeOf(ctx, c.key)
	if err != nil {
		return nil, &groupcommit.NotSentError{Err: err}
	}
	cmd := c.command(ctx)
	r := &c.request
	r.Cmder = cmd
	switch {
	case c.replicas == 0:
		err = n.plain.Do(ctx, r)
	case alone:
		n.sendConfirmed(ctx, r.Alone(r))
	default:
		err = n.confirmed.Do(ctx, r)
	}
	switch {
	case err != nil:
		return nil, err
	case r.err == nil:
		return cmd.Val(), nil
	case c.install && c.replicas != 0 || !notRun(r.err) || ctx.Err() != nil:
		return nil, r.err
	}
	// While a slot moves to another master, its owners go on and keep what they commit. The connection that the client
	// sends this through is not known, so no replica can be asked to confirm it.
	if r.confirmed, r.want = 0, 0; c.replicas != 0 {
		r.want, r.detail = max(c.replicas, 1), "the tile's slot is moving to another master: present it again"
	}
	return s.redirected(ctx, c.key, c.arguments.list)
}

// redirected sends a call through the cluster's client, which follows the slot wherever it is and tries
// again by itself, and loads the library where it is missing.
func (s *store) redirected(ctx context.Context, key string, args []any) (any, error) {
	send := func() (any, error) {
		cmd := functionCommand(ctx, args)
		_ = s.client.Process(ctx, cmd)
		return cmd.Result()
	}
	reply, err := send()
	if redislib.Missing(err) {
		// Asking again is safe: it did not run here, and if it ran elsewhere it is recognised.
		if err = s.loadFor(ctx, key); err == nil {
			reply, err = send()
		}
	}
	return reply, err
}

func (s *store) loadFor(ctx context.Context, key string) error {
	node, err := redislib.Master(ctx, s.client, key)
	if err != nil {
		return err
	}
	return library.Restore(ctx, node, s.needs(), &s.checks)
}

// Call implements redislib.Caller.
func (s *store) Call(ctx context.Context, op string, c redislib.FunctionCall) ([]any, error) {
	r := s.CallMany(ctx, op, []redislib.FunctionCall{c})
	return r[0].Values, r[0].Err
}

// CallMany implements redislib.Caller.
func (s *store) CallMany(ctx context.Context, op string, calls []redislib.FunctionCall) []redislib.FunctionReply {
	replies := make([]redislib.FunctionReply, len(calls))
	if ctx.Err() != nil {
		for i := range calls {
			replies[i].Err = guard.Ended(ctx, op, calls[i].Tile)
		}
		return replies
	}
	if err := s.checks.Refused(); err != nil {
		for i := range calls {
			replies[i].Err = failed(op, calls[i].Tile, &groupcommit.NotSentError{Err: err})
		}
		return replies
	}
	pipe := s.client.Pipeline()
	sent := make([]*redis.Cmd, len(calls))
	for i := range calls {
		sent[i] = redislib.Call(ctx, "fcall", calls[i].Function, calls[i].Keys, calls[i].Args...)
		_ = pipe.Process(ctx, sent[i])
	}
	_, _ = pipe.Exec(ctx)           // each command has its own error
	var refused []*redislib.Refused // for a key of a wrong type
	var at []int
	for i := range calls {
		reply, err := sent[i].Slice()
		if redislib.Missing(err) {
			var again any
			again, err = s.redirected(ctx, calls[i].Keys[0], sent[i].Args())
			reply, _ = again.([]any)
		}
		if redislib.WrongType(err) {
			refused = append(refused, &redislib.Refused{Tile: calls[i].Tile, Keys: calls[i].Keys, Err: err})
			at = append(at, i)
			continue
		}
		replies[i] = functionReply(op, &calls[i], reply, err)
	}
	redislib.Explain(ctx, s.client, refused)
	for n, i := range at {
		replies[i] = functionReply(op, &calls[i], nil, refused[n].Err)
	}
	return replies
}

func functionReply(op string, c *redislib.FunctionCall, reply []any, err error) redislib.FunctionReply {
	if err != nil {
		return redislib.FunctionReply{Err: failed(op, c.Tile, err)}
	}
	if code, what := head(reply); code != "ok" {
		return redislib.FunctionReply{Err: &fence.ArgumentError{Field: what, Value: code,
			Want: "what docs/wire.md says of " + c.Function}}
	}
	return redislib.FunctionReply{Values: reply[1:]}
}

func head(reply []any) (code, detail string) {
	p := redislib.Values{All: reply}
	code = p.Text(0)
	if len(reply) > 1 {
		detail = fmt.Sprint(reply[1])
	}
	return code, detail
}

// read turns a reply into a receipt or a typed refusal.
func (c *call) read(reply any) (fence.Receipt, error) {
	switch reply {
	case "ok":
		return fence.Receipt{Position: c.next}, nil
	case "again":
		return fence.Receipt{Position: c.next, Duplicate: true}, nil
	}
	list, _ := reply.([]any)
	code, detail := head(list)
	p := redislib.Values{All: list}
	switch {
	case code == "again":
		if r := (fence.Receipt{Position: p.Position(1), Duplicate: true}); !p.Bad {
			return r, nil
		}
	case code == "invalid":
		return fence.Receipt{}, &fence.ArgumentError{Field: detail, Value: "refused by " + c.op,
			Want: "see docs/wire.md"}
	case code == "corrupt":
		return fence.Receipt{}, &fence.CorruptError{Tile: c.tile, What: "coordination state",
			Detail: detail + "; see tilectl repair"}
	case refusals[code] != nil:
		current := fence.Owner{Tile: c.tile, Position: p.Position(1), Contact: p.Text(2), Tick: fence.Tick(p.Number(3))}
		if current.Contact != "" {
			current.Epoch = current.Position.Epoch
		}
		if !p.Bad {
			return fence.Receipt{}, &fence.RefusedError{Reason: refusals[code], Tile: c.tile, Epoch: c.epoch,
				Current: current}
		}
	}
	return fence.Receipt{}, &fence.StoreError{Op: c.op, Tile: c.tile, Outcome: fence.ErrUnknownOutcome,
		Err: errors.New("unreadable reply: " + fmt.Sprint(reply))}
}

// arguments are those of one command, with room for their values. go-redis takes a []any: a value put into it by
// itself costs an allocation each, a pointer to one that has its room here costs none.
type arguments struct {
	list    []any
	room    [maxArguments]any
	texts   [maxArguments]string
	numbers [maxArguments]uint64
	payload payload
}

// maxArguments is the most a call of a writing function has: FCALL, the function, the number of keys, the keys and the
// function's own. More of them allocate.
const maxArguments = 16

// payload is bytes that go-redis writes as they are.
type payload []byte

// MarshalBinary implements encoding.BinaryMarshaler.
func (p *payload) MarshalBinary() ([]byte, error) { return *p, nil }

// fcall begins a call of a function on its keys.
func (a *arguments) fcall(function string, keys ...string) {
	a.list = append(a.room[:0], "fcall")
	a.text(function)
	a.list = append(a.list, len(keys))
	for _, k := range keys {
		a.text(k)
	}
}

// keys are those of a call of a function.
func (a *arguments) keys() []string {
	n, _ := a.list[2].(int)
	return a.texts[3 : 3+n]
}

func (a *arguments) text(s string) {
	at := &a.texts[len(a.list)]
	*at = s
	a.list = append(a.list, at)
}

func (a *arguments) number(n uint64) {
	at := &a.numbers[len(a.list)]
	*at = n
	a.list = append(a.list, at)
}

// bytes adds the payload, of which a call has one.
func (a *arguments) bytes(b []byte) {
	a.payload = b
	a.list = append(a.list, &a.payload)
}
