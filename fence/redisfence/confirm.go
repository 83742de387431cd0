package redisfence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/wait"
)

// frameField is the one field of a stream entry, as the functions write it.
const frameField = "f"

// confirmWithin is for how long Confirm waits. Replicas report what they have once a second, or when a WAIT asks.
const confirmWithin = 3 * time.Second

// ackKeptFor is how long the key is kept that hasten writes.
const ackKeptFor = 10 * time.Second

// Confirm implements fence.Store. It compares what the replicas have reported with how far the master was when it was
// seen to hold the position. If they have reported less, it asks them, once: see hasten.
func (s *store) Confirm(ctx context.Context, tile fence.TileID, at fence.Position) error {
	if err := guard.Call(ctx, "confirm", tile); err != nil {
		return err
	}
	failed := func(err error) error {
		return &fence.StoreError{Op: "confirm", Tile: tile, Outcome: fence.ErrNotApplied, Err: err}
	}
	key := s.cfg.World.Keys(tile).Stream
	client, err := redislib.Master(ctx, s.client, key)
	if err != nil {
		return failed(err)
	}
	within, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	first, found, err := s.follow(ctx, client, key, at)
	if err != nil {
		s.reloadTopology(ctx)
		return s.unread(ctx, "confirm", tile, err, key)
	}
	receipt := fence.Receipt{Position: at}
	if !found {
		return &fence.UnconfirmedError{Tile: tile, Receipt: receipt, Want: first.want,
			Detail: "the master's stream does not have this position"}
	}
	hasten := s.hasten
	for now := first; ; {
		receipt.Replicas = now.with(first.offset)
		switch {
		case now.id != first.id:
			return failed(errors.New("the master has begun another replication history"))
		case receipt.Replicas >= now.want:
			return nil
		case now.want > 0 && now.listed == 0:
			return &fence.UnconfirmedError{Tile: tile, Receipt: receipt, Want: now.want, Detail: noReplica}
		}
		if hasten == nil || !hasten(within, tile, now.want) {
			wait.For(within, 100*time.Millisecond)
		}
		hasten = nil
		switch {
		case ctx.Err() != nil:
			return failed(context.Cause(ctx))
		case within.Err() != nil:
			return &fence.UnconfirmedError{Tile: tile, Receipt: receipt, Want: now.want}
		}
		if now, _, err = s.follow(ctx, client, "", at); err != nil {
			s.reloadTopology(ctx)
			return failed(err)
		}
	}
}

// hasten has the replicas of a tile's master report how far they are, and says whether they have: by themselves they do
// once a second. WAIT asks them if its connection has written something, so this writes a key that nothing reads and
// that soon expires. It shares the WAIT of other calls, and waits for ConfirmTimeout at most. A user that may not write
// the key waits for the replicas.
func (s *store) hasten(ctx context.Context, tile fence.TileID, replicas int) bool {
	if s.mayNotHasten.Load() || s.checks.Refused() != nil {
		return false
	}
	key := s.cfg.World.Keys(tile).Stream
	n, err := s.nodeOf(ctx, key)
	if err != nil {
		return false
	}
	key = strings.TrimSuffix(key, "stream") + "ack"
	r := &request{Item: sized(overhead), replicas: replicas,
		Cmder: redis.NewStatusCmd(ctx, "set", key, "", "px", ackKeptFor.Milliseconds())}
	if s.cfg.Unpipelined {
		n.sendConfirmed(ctx, r.Alone(r))
	} else if n.confirmed.Do(ctx, r) != nil {
		return false
	}
	if r.err != nil {
		s.mayNotHasten.Store(redis.IsPermissionError(r.err))
		return false
	}
	return r.confirmed >= replicas
}

// replication is how far a master is, and how far its replicas are.
type replication struct {
	id           string // of the master's replication history
	offset       int64  // of the master
	replicas     []redislib.Acknowledged
	listed, want int // how many replicas there are, and how many must have it
}

// with is how many replicas have reported an offset.
func (r *replication) with(offset int64) (n int) {
	for _, a := range r.replicas {
		if a.Offset >= offset {
			n++
		}
	}
	return n
}

// follow reads, on one connection and in this order, whether a stream holds a position, and how far the replicas are:
// so the master's offset is past the write of that position. An empty key asks only the second.
func (s *store) follow(
	ctx context.Context, client *redis.Client, key string, at fence.Position,
) (r replication, found bool, err error) {
	pipe := client.Pipeline()
	var entry *redis.XMessageSliceCmd
	if key != "" {
		id := strconv.FormatUint(uint64(at.Seq), 10) + "-0"
		entry = pipe.XRange(ctx, key, id, id)
	}
	question := s.replicaQuestion(ctx)
	for _, q := range question {
		_ = pipe.Process(ctx, q)
	}
	if _, err = pipe.Exec(ctx); err != nil {
		return r, false, err
	}
	info := question[0].Val()
	if role := redislib.InfoField(info, "role"); role != "master" {
		return r, false, fmt.Errorf("the node is not a master any more, but a %s", role)
	}
	if r.listed, err = s.countReplicas(question); err != nil {
		return r, false, err
	}
	r.want = s.wanted(fence.AllReplicas, r.listed)
	r.id = redislib.InfoField(info, "master_replid")
	if r.offset, err = strconv.ParseInt(redislib.InfoField(info, "master_repl_offset"), 10, 64); err != nil {
		return r, false, fmt.Errorf("INFO replication gives no master_repl_offset: %w", err)
	}
	r.replicas = redislib.AcknowledgedBy(info)
	if entry != nil {
		for _, m := range entry.Val() {
			frame, _ := m.Values[frameField].(string)
			e, err := fence.DecodeEntry([]byte(frame))
			found = err == nil && e.Position == at
		}
	}
	return r, found, nil
}
