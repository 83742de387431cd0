package redisfence

import (
	"context"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// call is one invocation of a writing function.
type call struct {
	op       string
	function string
	tile     fence.TileID
	epoch    fence.Epoch
	replicas int
	keys     []string
	args     []any
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

// write runs a function, loading the library where it is missing, and reads its reply.
func (s *Store) write(ctx context.Context, c call) (fence.Receipt, error) {
	if ctx.Err() != nil {
		return fence.Receipt{}, notSent(c.op, c.tile, ctx)
	}
	reply, confirmed, want, err := s.invoke(ctx, c)
	if isFunctionMissing(err) {
		// It never ran, so asking again is safe.
		if err := s.loadFor(ctx, c.keys[0]); err != nil {
			return fence.Receipt{}, &fence.StoreError{Op: c.op, Tile: c.tile, Outcome: fence.ErrNotApplied, Err: err}
		}
		reply, confirmed, want, err = s.invoke(ctx, c)
	}
	if err != nil {
		return fence.Receipt{}, &fence.StoreError{Op: c.op, Tile: c.tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	receipt, err := c.read(reply)
	if err != nil {
		return fence.Receipt{}, err
	}
	receipt.Replicas = confirmed
	if confirmed < want {
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: c.tile, Receipt: receipt, Want: want}
	}
	return receipt, nil
}

func (s *Store) invoke(ctx context.Context, c call) (reply []any, confirmed, want int, err error) {
	if c.replicas == 0 {
		reply, err = s.client.FCall(ctx, c.function, c.keys, c.args...).Slice()
		return reply, 0, 0, err
	}
	return s.invokeConfirmed(ctx, c)
}

// invokeConfirmed sends the call and WAIT on one connection to the key's own master: WAIT speaks of the
// writes of its connection, and through a cluster pipeline it would go to any node.
func (s *Store) invokeConfirmed(ctx context.Context, c call) (reply []any, confirmed, want int, err error) {
	node, err := s.master(ctx, c.keys[0])
	if err != nil {
		return nil, 0, 0, err
	}
	want = c.replicas
	if want == fence.AllReplicas {
		if want, err = s.replicasOf(ctx, node, c.keys[0]); err != nil {
			return nil, 0, 0, err
		}
	}
	pipe := node.Pipeline()
	result := pipe.FCall(ctx, c.function, c.keys, c.args...)
	var wait *redis.Cmd
	if want > 0 {
		wait = pipe.Do(ctx, "wait", want, s.cfg.ConfirmTimeout.Milliseconds())
	}
	_, err = pipe.Exec(ctx)
	if reply, rerr := result.Slice(); rerr != nil {
		s.reloadTopology(ctx)
		return nil, 0, want, rerr
	} else if wait == nil {
		return reply, 0, 0, nil
	} else if n, werr := wait.Int(); werr == nil {
		return reply, n, want, nil
	} else if redis.HasErrorPrefix(werr, "UNBLOCKED") || err == nil {
		// The node turned into a replica while it waited: what it appended will not survive.
		s.reloadTopology(ctx)
		return reply, 0, want, nil
	}
	return nil, 0, want, err
}

// reloadTopology makes the next call look for the slot's master anew. The node's own client follows no
// redirection, so a MOVED ends here; the caller presents the same write again.
func (s *Store) reloadTopology(ctx context.Context) {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

func (s *Store) master(ctx context.Context, key string) (*redis.Client, error) {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return s.client.(*redis.Client), nil
}

// replicasOf asks the master itself how many replicas its shard has: those that the cluster lists and
// has not declared failed, or outside a cluster those that are connected.
func (s *Store) replicasOf(ctx context.Context, node *redis.Client, key string) (int, error) {
	if _, ok := s.client.(*redis.ClusterClient); !ok {
		info, err := node.Info(ctx, "replication").Result()
		if err != nil {
			return 0, err
		}
		var n int
		if _, err := fmt.Sscan(infoField(info, "connected_slaves"), &n); err != nil {
			return 0, fmt.Errorf("INFO replication gives no connected_slaves: %w", err)
		}
		return max(n, s.cfg.MinReplicas), nil
	}
	slot, err := node.ClusterKeySlot(ctx, key).Result()
	if err != nil {
		return 0, err
	}
	slots, err := node.ClusterSlots(ctx).Result()
	if err != nil {
		return 0, err
	}
	for _, r := range slots {
		if int64(r.Start) <= slot && slot <= int64(r.End) {
			return max(len(r.Nodes)-1, s.cfg.MinReplicas), nil
		}
	}
	return 0, fmt.Errorf("no node serves slot %d", slot)
}

func (s *Store) loadFor(ctx context.Context, key string) error {
	node, err := s.master(ctx, key)
	if err != nil {
		return err
	}
	return loadOn(ctx, node)
}

// Call runs one of the library's functions that only other packages of this module know, on one tile's
// keys, loading the library where it is missing.
func (s *Store) Call(ctx context.Context, tile fence.TileID, op, function string, keys []string, args ...any) ([]any, error) {
	if ctx.Err() != nil {
		return nil, notSent(op, tile, ctx)
	}
	reply, err := s.client.FCall(ctx, function, keys, args...).Slice()
	if isFunctionMissing(err) {
		if err = s.loadFor(ctx, keys[0]); err == nil {
			reply, err = s.client.FCall(ctx, function, keys, args...).Slice()
		}
	}
	if err != nil {
		return nil, &fence.StoreError{Op: op, Tile: tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	if code, what := head(reply); code != "ok" {
		return nil, &fence.ArgumentError{Field: what, Value: code, Want: "what docs/wire.md says of " + function}
	}
	return reply, nil
}

func head(reply []any) (code, detail string) {
	p := replyParser{v: reply}
	code = p.text(0)
	if len(reply) > 1 {
		detail = fmt.Sprint(reply[1])
	}
	return code, detail
}

// read turns a reply into a receipt or a typed refusal.
func (c *call) read(reply []any) (fence.Receipt, error) {
	code, detail := head(reply)
	p := replyParser{v: reply}
	switch {
	case code == "ok" || code == "again":
		r := fence.Receipt{Duplicate: code == "again",
			Position: fence.Position{Epoch: fence.Epoch(p.number(1)), Seq: fence.Seq(p.number(2)), Chain: p.chain(3)}}
		if !p.bad {
			return r, nil
		}
	case code == "invalid":
		return fence.Receipt{}, &fence.ArgumentError{Field: detail, Value: "refused by " + c.function, Want: "see docs/wire.md"}
	case code == "corrupt":
		return fence.Receipt{}, &fence.CorruptError{Tile: c.tile, What: "coordination state", Detail: detail}
	case code == "checksum":
		return fence.Receipt{}, &fence.RefusedError{Reason: fence.ErrChecksum, Tile: c.tile, Epoch: c.epoch}
	case refusals[code] != nil:
		current := fence.Owner{Tile: c.tile, Epoch: fence.Epoch(p.number(1)), Contact: p.text(4), Tick: fence.Tick(p.number(5)),
			Position: fence.Position{Epoch: fence.Epoch(p.number(6)), Seq: fence.Seq(p.number(2)), Chain: p.chain(3)}}
		if !p.bad {
			return fence.Receipt{}, &fence.RefusedError{Reason: refusals[code], Tile: c.tile, Epoch: c.epoch, Current: current}
		}
	}
	return fence.Receipt{}, &fence.StoreError{Op: c.op, Tile: c.tile, Outcome: fence.ErrUnknownOutcome,
		Err: errors.New("unreadable reply: " + fmt.Sprint(reply))}
}

// replyParser reads fields of a reply; after anything unreadable bad is set.
type replyParser struct {
	v   []any
	bad bool
}

func (p *replyParser) text(i int) string {
	if i >= len(p.v) {
		p.bad = true
		return ""
	}
	s, ok := p.v[i].(string)
	p.bad = p.bad || !ok
	return s
}

func (p *replyParser) number(i int) uint64 {
	n, err := fence.ParseNumber(p.text(i))
	p.bad = p.bad || err != nil
	return n
}

func (p *replyParser) chain(i int) fence.Chain {
	c, err := fence.ParseChain(p.text(i))
	p.bad = p.bad || err != nil
	return c
}
