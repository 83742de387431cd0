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
)

// frameField is the one field of a stream entry, as the functions write it.
const frameField = "f"

// confirmWithin is for how long Confirm waits. Replicas report what they have once a second.
const confirmWithin = 3 * time.Second

// Confirm implements fence.Store. It writes nothing, so that WAIT has nothing to wait for: it compares what the
// replicas have reported with how far the master was when it was seen to hold the position.
func (s *Store) Confirm(ctx context.Context, tile fence.TileID, at fence.Position) error {
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
		select {
		case <-ctx.Done():
			return failed(context.Cause(ctx))
		case <-within.Done():
			return &fence.UnconfirmedError{Tile: tile, Receipt: receipt, Want: now.want}
		case <-time.After(100 * time.Millisecond):
		}
		if now, _, err = s.follow(ctx, client, "", at); err != nil {
			s.reloadTopology(ctx)
			return failed(err)
		}
	}
}

// replication is how far a master is, and how far its replicas are.
type replication struct {
	id           string  // of the master's replication history
	offset       int64   // of the master
	replicas     []int64 // what connected replicas have reported
	listed, want int     // how many replicas there are, and how many must have it
}

// with is how many replicas have reported an offset.
func (r *replication) with(offset int64) (n int) {
	for _, o := range r.replicas {
		if o >= offset {
			n++
		}
	}
	return n
}

// follow reads, on one connection and in this order, whether a stream holds a position, and how far the replicas are:
// so the master's offset is past the write of that position. An empty key asks only the second.
func (s *Store) follow(
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
	r.replicas = replicaOffsets(info)
	if entry != nil {
		for _, m := range entry.Val() {
			frame, _ := m.Values[frameField].(string)
			e, err := fence.DecodeEntry([]byte(frame))
			found = err == nil && e.Position == at
		}
	}
	return r, found, nil
}

// replicaOffsets reads what each replica that is online has reported, from lines such as
//
//	slave0:ip=127.0.0.1,port=7004,state=online,offset=1234,lag=0
func replicaOffsets(info string) (offsets []int64) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if _, err := strconv.Atoi(strings.TrimPrefix(name, "slave")); err != nil || !strings.HasPrefix(name, "slave") {
			continue
		}
		fields := map[string]string{}
		for _, f := range strings.Split(value, ",") {
			k, v, _ := strings.Cut(f, "=")
			fields[k] = v
		}
		if offset, err := strconv.ParseInt(fields["offset"], 10, 64); err == nil && fields["state"] == "online" {
			offsets = append(offsets, offset)
		}
	}
	return offsets
}
