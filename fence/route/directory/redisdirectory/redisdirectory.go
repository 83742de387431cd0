// Package redisdirectory keeps the directory of players on Redis 7.
//
//	client := redis.NewClusterClient(redisfanout.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	d, err := directory.New(redisdirectory.New(client, fence.World{}), nil)
//
// A player's record is one hash, see docs/wire.md. Players are divided into 64 groups, and the records of a group are
// in one slot; so the leases of many players are renewed by one script for each group. Look-ups of single players share
// pipelines: while one is under way to a server, those that come meanwhile gather for the next, of up to 128, in the
// order in which they came. At most 4,096 wait for each server; what finds no room is a directory.ErrOverloaded. Leases
// are judged by the clock of the node that has the record. Any Redis will do; the fan-out cluster is at hand, and
// forgets places when it is restarted without a file: they are known again when the players act. A user needs evalsha,
// eval, time, hget, hgetall, hset, hdel and pexpire on the records, and spublish and ssubscribe on the channels, see
// deploy/acl.
package redisdirectory

import (
	"cmp"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/groupcommit"
	"github.com/tilefence/tilefence/internal/redislib"
)

//go:embed record.lua
var recordSource string

//go:embed place.lua
var placeSource string

var recordScript, placeScript = redis.NewScript(recordSource), redis.NewScript(placeSource)

const (
	// groups is how many groups players are divided into.
	groups = 64

	mostKeys = 128         // of one script: it holds up the node for less than a millisecond
	atOnce   = 16          // scripts of one call
	silence  = time.Second // after which a subscription is pinged
)

// store implements directory.Store.
type store struct {
	client redis.UniversalClient
	world  fence.World
	looks  redislib.PerServer[groupcommit.Queue[*look]]
}

var (
	_ directorystore.Store = (*store)(nil)
	_ fence.WorldKeeper    = (*store)(nil)
)

// New returns the directory on client, of a world; the zero World is the one without a name. It does no I/O; a name
// that is none makes every call fail with a *fence.ArgumentError, and so does a client that is neither a
// *redis.ClusterClient nor a *redis.Client. The client must obey deadlines (ContextTimeoutEnabled, see
// redisfanout.Options).
func New(client redis.UniversalClient, w fence.World) directory.Store {
	return &store{client: client, world: w}
}

// usable refuses what New was given.
func (s *store) usable() error { return cmp.Or(s.world.Validate(), redislib.Usable(s.client)) }

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (s *store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, s.client, s.world, w)
}

// recordKey is the key of a player's record in the world without a name; fence.World.Key makes those of others of it.
// It is part of the wire contract (docs/wire.md).
func recordKey(actor string) string {
	return "{tilefence:players:" + strconv.FormatUint(uint64(group(actor)), 10) + "}:" + actor
}

// channelOf is the channel on which a process is posted messages, likewise.
func channelOf(holder string) string { return "{tilefence:inbox:" + holder + "}" }

func group(actor string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(actor))
	return h.Sum32() % groups
}

// grouped calls f for places in a list of actors: those of one group, in order, a few at a time. Groups that fail,
// since their master does not answer, do not keep those of the others.
func (s *store) grouped(op string, n int, actor func(i int) string, f func(keys []string, places []int) error) error {
	if err := s.usable(); err != nil {
		return err
	}
	var of [groups][]int
	for i := range n {
		g := group(actor(i))
		of[g] = append(of[g], i)
	}
	var parts errgroup.Group
	parts.SetLimit(atOnce)
	for _, all := range of {
		if len(all) == 0 {
			continue
		}
		parts.Go(func() error {
			for some := range slices.Chunk(all, mostKeys) {
				keys := make([]string, len(some))
				for k, i := range some {
					keys[k] = s.world.Key(recordKey(actor(i)))
				}
				if err := f(keys, some); err != nil && !errors.Is(err, redis.Nil) {
					return failed(op, err)
				}
			}
			return nil
		})
	}
	return parts.Wait()
}

// run does something to the records of actors.
func (s *store) run(ctx context.Context, op, holder string, actors ...string) ([]directorystore.Record, error) {
	records := make([]directorystore.Record, len(actors))
	actor := func(i int) string { return actors[i] }
	err := s.grouped(op, len(actors), actor, func(keys []string, places []int) error {
		found, err := decodeAll(recordScript.Run(ctx, s.client, keys, recordArgs(op, holder)...), len(keys))
		for k := range found {
			records[places[k]] = found[k]
		}
		return err
	})
	return records, err
}

// recordArgs are the arguments of record.lua.
func recordArgs(op, holder string) []any {
	return []any{op, directorystore.TTL.Milliseconds(), directorystore.Keep.Milliseconds(), holder}
}

// decodeAll reads what record.lua returns for so many keys.
func decodeAll(cmd *redis.Cmd, keys int) ([]directorystore.Record, error) {
	reply, err := cmd.Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != keys {
		return nil, fmt.Errorf("unexpected answer %q", reply)
	}
	records := make([]directorystore.Record, keys)
	for k := range reply {
		if records[k], err = decode(reply[k]); err != nil {
			return records[:k], err
		}
	}
	return records, nil
}

// decode reads what the script returns for one key.
func decode(reply any) (r directorystore.Record, err error) {
	fields, _ := reply.([]any)
	if len(fields) < 2 {
		return r, fmt.Errorf("unexpected answer %q", reply)
	}
	place, _ := fields[0].(string)
	r.Place = decodePlace(place)
	if ended, _ := fields[1].(int64); ended >= 0 {
		r.Ended, r.EverEnded = time.Duration(ended)*time.Millisecond, true
	}
	for _, f := range fields[2:] {
		holder, _ := f.(string)
		r.Holders = append(r.Holders, holder)
	}
	slices.Sort(r.Holders)
	return r, nil
}

// decodePlace reads what place.lua writes.
func decodePlace(text string) (p directorystore.Place) {
	part := strings.Fields(text)
	if len(part) != 4 {
		return p
	}
	tile, err1 := strconv.ParseUint(part[0], 16, 64)
	epoch, err2 := strconv.ParseUint(part[1], 10, 64)
	seq, err3 := strconv.ParseUint(part[2], 10, 64)
	at, err4 := strconv.ParseInt(part[3], 10, 64)
	if errors.Join(err1, err2, err3, err4) != nil {
		return p
	}
	return directorystore.Place{Tile: fence.TileID(tile), At: time.UnixMilli(at),
		Came: fence.Position{Epoch: fence.Epoch(epoch), Seq: fence.Seq(seq)}}
}

// Renew implements directory.Store.
func (s *store) Renew(ctx context.Context, holder string, actors ...string) ([]directorystore.Record, error) {
	return s.run(ctx, "renew", holder, actors...)
}

// Leave implements directory.Store.
func (s *store) Leave(ctx context.Context, holder string, actors ...string) error {
	_, err := s.run(ctx, "leave", holder, actors...)
	return err
}

// End implements directory.Store.
func (s *store) End(ctx context.Context, actor string) (directorystore.Record, error) {
	r, err := s.run(ctx, "end", "", actor)
	return r[0], err
}

// Place implements directory.Store.
func (s *store) Place(ctx context.Context, moves ...directorystore.Move) error {
	actor := func(i int) string { return moves[i].Actor }
	return s.grouped("place", len(moves), actor, func(keys []string, places []int) error {
		args := []any{directorystore.Slack.Milliseconds(), directorystore.Keep.Milliseconds()}
		for _, i := range places {
			m := &moves[i]
			args = append(args, m.To.String(), uint64(m.Came.Epoch), uint64(m.Came.Seq), m.From.String(),
				uint64(m.Left.Epoch), uint64(m.Left.Seq), m.At.UnixMilli())
		}
		return placeScript.Run(ctx, s.client, keys, args...).Err()
	})
}

// Post implements directory.Store.
func (s *store) Post(ctx context.Context, holder string, message []byte) (bool, error) {
	if err := s.usable(); err != nil {
		return false, err
	}
	n, err := s.client.SPublish(ctx, s.world.Key(channelOf(holder)), message).Result()
	if err != nil {
		return false, failed("post", err)
	}
	return n > 0, nil
}

// Listen implements directory.Store. It has a connection of its own.
func (s *store) Listen(ctx context.Context, holder string, ready func(), heard func([]byte)) error {
	if err := s.usable(); err != nil {
		return err
	}
	sub := s.client.SSubscribe(ctx, s.world.Key(channelOf(holder)))
	defer sub.Close()
	defer context.AfterFunc(ctx, func() { _ = sub.Close() })() // or it would wait for the next message
	pinged := false
	for {
		message, err := sub.ReceiveTimeout(ctx, silence)
		var wire net.Error
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			pinged = false
		case !pinged && errors.As(err, &wire) && wire.Timeout() && sub.Ping(ctx) == nil:
			pinged = true
		default:
			return failed("listen", err)
		}
		switch m := message.(type) {
		case *redis.Subscription:
			if m.Kind != "ssubscribe" {
				return failed("listen", errors.New("the channel's slot has moved"))
			}
			ready()
		case *redis.Message:
			heard([]byte(m.Payload))
		}
	}
}

func failed(op string, err error) error {
	outcome := fence.ErrUnknownOutcome
	if unsent, ok := errors.AsType[*groupcommit.NotSentError](err); ok {
		outcome, err = fence.ErrNotApplied, unsent.Err
	}
	if errors.Is(err, groupcommit.ErrFull) {
		err = directory.ErrOverloaded
	}
	return &fence.StoreError{Op: op, Outcome: outcome, Err: err}
}
