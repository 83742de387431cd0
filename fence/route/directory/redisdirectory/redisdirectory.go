// Package redisdirectory keeps the directory of players on Redis 7.
//
//	client := redis.NewClusterClient(redisfanout.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	d, err := directory.New(redisdirectory.New(client, fence.World{}), nil)
//
// A player's record is one hash, see docs/wire.md. Players are divided into 64 groups, and the records of a group are
// in one slot; so the leases of many players are renewed by one script for each group. Leases are judged by the clock
// of the node that has the record. Any Redis will do; the fan-out cluster is at hand, and forgets places when it is
// restarted without a file: they are known again when the players act. A user needs evalsha, eval, time, hget, hgetall,
// hset, hdel and pexpire on the records, and spublish and ssubscribe on the channels, see deploy/acl.
package redisdirectory

import (
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
	"github.com/tilefence/tilefence/internal/redislib"
)

//go:embed record.lua
var recordSource string

//go:embed place.lua
var placeSource string

var recordScript, placeScript = redis.NewScript(recordSource), redis.NewScript(placeSource)

const (
	// Groups is how many groups players are divided into.
	Groups = 64

	mostKeys = 128         // of one script: it holds up the node for less than a millisecond
	atOnce   = 16          // scripts of one call
	silence  = time.Second // after which a subscription is pinged
)

// Store implements directory.Store on Redis.
type Store struct {
	client redis.UniversalClient
	world  fence.World
}

var (
	_ directory.Store   = (*Store)(nil)
	_ fence.WorldKeeper = (*Store)(nil)
)

// New returns the directory on client, of a world; the zero World is the one without a name. It does no I/O; a name
// that is none makes every call fail with a *fence.ArgumentError. The client must obey deadlines
// (ContextTimeoutEnabled, see redisfanout.Options).
func New(client redis.UniversalClient, w fence.World) *Store { return &Store{client, w} }

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (s *Store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, s.client, s.world, w)
}

// Key is the key of a player's record in the world without a name; fence.World.Key makes those of others of it. It is
// part of the wire contract (docs/wire.md).
func Key(actor string) string {
	return "{tilefence:players:" + strconv.FormatUint(uint64(group(actor)), 10) + "}:" + actor
}

// Channel is the channel on which a process is posted messages, likewise.
func Channel(holder string) string { return "{tilefence:inbox:" + holder + "}" }

func group(actor string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(actor))
	return h.Sum32() % Groups
}

// grouped calls f for places in a list of actors: those of one group, in order, a few at a time. Groups that fail,
// since their master does not answer, do not keep those of the others.
func (s *Store) grouped(op string, n int, actor func(i int) string, f func(keys []string, places []int) error) error {
	if err := s.world.Validate(); err != nil {
		return err
	}
	var of [Groups][]int
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
					keys[k] = s.world.Key(Key(actor(i)))
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
func (s *Store) run(ctx context.Context, op, holder string, actors ...string) ([]directory.Record, error) {
	records := make([]directory.Record, len(actors))
	actor := func(i int) string { return actors[i] }
	err := s.grouped(op, len(actors), actor, func(keys []string, places []int) error {
		reply, err := recordScript.Run(ctx, s.client, keys, op, directory.TTL.Milliseconds(),
			directory.Keep.Milliseconds(), holder).Slice()
		if err == nil && len(reply) != len(keys) {
			err = fmt.Errorf("unexpected answer %q", reply)
		}
		for k := 0; err == nil && k < len(keys); k++ {
			records[places[k]], err = decode(reply[k])
		}
		return err
	})
	return records, err
}

// decode reads what the script returns.
func decode(reply any) (r directory.Record, err error) {
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
func decodePlace(text string) (p directory.Place) {
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
	return directory.Place{Tile: fence.TileID(tile), At: time.UnixMilli(at),
		Came: fence.Position{Epoch: fence.Epoch(epoch), Seq: fence.Seq(seq)}}
}

// Look implements directory.Store.
func (s *Store) Look(ctx context.Context, actors ...string) ([]directory.Record, error) {
	return s.run(ctx, "look", "", actors...)
}

// Renew implements directory.Store.
func (s *Store) Renew(ctx context.Context, holder string, actors ...string) ([]directory.Record, error) {
	return s.run(ctx, "renew", holder, actors...)
}

// Leave implements directory.Store.
func (s *Store) Leave(ctx context.Context, holder string, actors ...string) error {
	_, err := s.run(ctx, "leave", holder, actors...)
	return err
}

// End implements directory.Store.
func (s *Store) End(ctx context.Context, actor string) (directory.Record, error) {
	r, err := s.run(ctx, "end", "", actor)
	return r[0], err
}

// Place implements directory.Store.
func (s *Store) Place(ctx context.Context, moves ...directory.Move) error {
	actor := func(i int) string { return moves[i].Actor }
	return s.grouped("place", len(moves), actor, func(keys []string, places []int) error {
		args := []any{directory.Slack.Milliseconds(), directory.Keep.Milliseconds()}
		for _, i := range places {
			m := &moves[i]
			args = append(args, m.To.String(), uint64(m.Came.Epoch), uint64(m.Came.Seq), m.From.String(),
				uint64(m.Left.Epoch), uint64(m.Left.Seq), m.At.UnixMilli())
		}
		return placeScript.Run(ctx, s.client, keys, args...).Err()
	})
}

// Post implements directory.Store.
func (s *Store) Post(ctx context.Context, holder string, message []byte) (bool, error) {
	if err := s.world.Validate(); err != nil {
		return false, err
	}
	n, err := s.client.SPublish(ctx, s.world.Key(Channel(holder)), message).Result()
	if err != nil {
		return false, failed("post", err)
	}
	return n > 0, nil
}

// Listen implements directory.Store. It has a connection of its own.
func (s *Store) Listen(ctx context.Context, holder string, ready func(), heard func([]byte)) error {
	if err := s.world.Validate(); err != nil {
		return err
	}
	sub := s.client.SSubscribe(ctx, s.world.Key(Channel(holder)))
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
	return &fence.StoreError{Op: op, Outcome: fence.ErrUnknownOutcome, Err: err}
}
