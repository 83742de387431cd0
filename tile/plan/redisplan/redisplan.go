// Package redisplan is a plan.Store on Redis 7: a cluster, or a single server.
//
//	client := redis.NewClusterClient(redisfence.Options("10.0.0.1:6379", "10.0.0.2:6379"))
//	plans, err := redisplan.New(client, nil)
//	err = plans.Load(ctx) // the function library, on every master
//	desk, err := plan.NewDesk(plans, host.Submit, nil)
//
// Tiles are dealt to eight shards, each of which is one slot: {tilefence:plan:0} to {tilefence:plan:7}. Every call is
// one function of the library tilefence_plan_v1 (lua/) on the keys of one shard, so it is one atomic step. The
// functions take the first key of a shard and name the others after it, all in that slot. The keys and their contents
// are described in lua/prelude.lua. Leases, pauses and ages go by the clock of the server that has the slot.
//
// Workers are woken by a message on a shard's channel. Messages that are lost cost a worker one of its polls.
//
// # Durability
//
// A step is acknowledged by the master alone. What it had not replicated when it died is lost, and nothing is stuck: a
// lost request is noticed by its desk, which asks the store for all it has when their counts differ; the
// request of a lost claim is claimed again; of a lost result, computed again. Its usage event may then be stored twice,
// with the same Request, by which billing's sink tells. If an owner has taken up a result in the moment before, the
// event that was lost with it is stored again with the owner's receipt; it is gone only if the master, in the same
// moment, loses that receipt too, or the owner dies. Use servers that write an append-only file and evict nothing.
// The coordination cluster will do; a game with much traffic gives plans a cluster of their own.
//
// # Memory
//
// A waiting request takes some 400 bytes and its words, an answer as much as its plan for 30 s, a usage event some 250
// until billing has taken it. MaxOutstanding bounds a tile, MaxLetters the dead letters of a shard.
//
// # Rights
//
// deploy/acl has users for owners, workers, billing and operators. A function has the rights of its caller.
package redisplan

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile/plan"
)

// shards is part of the wire contract: every process deals tiles in the same way.
const shards = 8

// Store keeps plans on Redis. Its methods may be called from any goroutine.
type Store struct {
	plan.Store
	own *store
}

// store implements plan.Store.
type store struct {
	client   redis.UniversalClient
	names    [shards]string // what the keys of each shard begin with
	function string         // what the functions' names begin with
	checks   redislib.Checks
	world    fence.World
}

// Config holds what has a default. The zero value is valid.
type Config struct {
	// World is the world that the plans are of. Its name and a colon begin every key and channel. Default: the world
	// without a name.
	World fence.World
	// Name keeps several sets of plans in one world apart: up to 32 letters, digits, underscores and hyphens,
	// the same in every process of a game. Default: none, {tilefence:plan:0}; with one, {tilefence:plan:name:0}.
	Name string
}

var validName = regexp.MustCompile(`^[a-zA-Z0-9_-]{0,32}$`)

var (
	_ fence.Checker     = (*Store)(nil)
	_ fence.WorldKeeper = (*Store)(nil)
)

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (s *Store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, s.own.client, s.own.world, w)
}

// New returns a store on client, a *redis.ClusterClient or *redis.Client, which stays the caller's to close. The client
// must obey deadlines (ContextTimeoutEnabled, see redisfence.Options), or a server that hangs delays others. New does
// no I/O. A nil cfg means the defaults. The error is a *fence.ArgumentError.
func New(client redis.UniversalClient, cfg *Config) (*Store, error) {
	c := setting.Of(cfg)
	if !validName.MatchString(c.Name) {
		return nil, &fence.ArgumentError{Field: "Name", Value: c.Name,
			Want: "up to 32 letters, digits, underscores and hyphens"}
	}
	if err := cmp.Or(c.World.Validate(), redislib.Usable(client)); err != nil {
		return nil, err
	}
	if c.Name != "" {
		c.Name += ":"
	}
	s := &store{client: client, function: "tilefence_plan", world: c.World}
	for i := range s.names {
		s.names[i] = c.World.Key("{tilefence:plan:" + c.Name + strconv.Itoa(i) + "}")
	}
	return &Store{Store: s, own: s}, nil
}

func (s *store) requests(shard int) []string { return []string{s.names[shard] + ":requests"} }

// Shards implements plan.Store.
func (s *store) Shards() int { return shards }

// Turn implements plan.Store.
func (s *store) Turn(ctx context.Context, shard int, turns []plan.Turn) []plan.TurnReply {
	replies := make([]plan.TurnReply, len(turns))
	calls := make([]call, len(turns))
	for i := range turns {
		calls[i] = turnCall(s.names[shard], &turns[i])
	}
	for i, cmd := range s.do(ctx, calls) {
		t := &turns[i]
		r, err := read("turn", t.Tile, &calls[i], cmd)
		if code, ok := errors.AsType[*codeError](err); ok && code.code == "stale" {
			current, _ := strconv.ParseUint(code.detail, 10, 64)
			err = &fence.RefusedError{Reason: fence.ErrStale, Tile: t.Tile, Epoch: t.Epoch,
				Current: fence.Owner{Tile: t.Tile, Epoch: fence.Epoch(current)}}
		}
		if replies[i].Err = err; err == nil {
			replies[i] = r.turn(t)
		}
	}
	return replies
}

func turnCall(name string, t *plan.Turn) call {
	tile := t.Tile.String()
	c := call{function: "turn", keys: []string{name + ":requests", name + ":tile:" + tile, name + ":answers:" + tile},
		args: make([]any, 0, 4+7*len(t.Seen)+5*len(t.Ask))}
	list := "0"
	if t.List {
		list = "1"
	}
	c.args = append(c.args, tile, strconv.FormatUint(uint64(t.Epoch), 10), list, len(t.Seen))
	for _, r := range t.Seen {
		c.args = append(c.args, r.Entity, r.ID, r.Requester, r.Usage.Model, r.Usage.Input, r.Usage.Output,
			r.Usage.Cached)
	}
	for i := range t.Ask {
		r := &t.Ask[i]
		c.args = append(c.args, r.ID, r.Entity, r.Requester, int(r.Tier), r.Words)
	}
	return c
}

// Claim implements plan.Store.
func (s *store) Claim(ctx context.Context, shard int, c plan.Claim) (plan.Claimed, error) {
	background := "0"
	if c.Background {
		background = "1"
	}
	r, err := s.invoke(ctx, "claim", call{function: "claim", keys: s.requests(shard),
		args: []any{c.Worker, ms(c.Lease), c.Any, c.Players, background, c.Attempts}})
	if err != nil {
		return plan.Claimed{}, err
	}
	got := plan.Claimed{Players: r.number(), Background: r.number(), Requests: r.requests()}
	return got, r.done("claim", 0)
}

// Renew implements plan.Store.
func (s *store) Renew(
	ctx context.Context, shard int, worker string, lease time.Duration, claims []plan.Held,
) (lost []string, err error) {
	args := []any{worker, ms(lease)}
	for _, h := range claims {
		args = append(args, h.ID, h.Attempt)
	}
	r, err := s.invoke(ctx, "renew", call{function: "renew", keys: s.requests(shard), args: args})
	if err != nil {
		return nil, err
	}
	list := r.list()
	for len(list.v) > 0 {
		lost = append(lost, list.text())
	}
	return lost, r.done("renew", 0)
}

// Finish implements plan.Store.
func (s *store) Finish(ctx context.Context, shard int, worker string, ends []plan.End) ([]bool, error) {
	args := make([]any, 0, 1+12*len(ends))
	args = append(args, worker)
	for i := range ends {
		e := &ends[i]
		args = append(args, e.ID, e.Attempt, int(e.Kind), ms(e.Keep), e.Body, e.Usage.Model, e.Usage.Input,
			e.Usage.Output, e.Usage.Cached, e.Error, ms(e.Pause), e.Attempts)
	}
	r, err := s.invoke(ctx, "finish", call{function: "finish", keys: s.requests(shard), args: args})
	if err != nil {
		return nil, err
	}
	list := r.list()
	held := make([]bool, len(ends))
	for i := range held {
		held[i] = list.number() == 1
	}
	r.bad = r.bad || list.bad
	return held, r.done("finish", 0)
}

// resubscribeAfter is the pause after a subscription that could not be made.
const resubscribeAfter = time.Second

// Wake implements plan.Store. It holds one connection for each shard.
func (s *store) Wake(ctx context.Context, heard func(int, plan.Tier)) error {
	var all sync.WaitGroup
	for shard := range shards {
		all.Go(func() {
			for ctx.Err() == nil {
				s.listen(ctx, shard, heard)
				wait.For(ctx, resubscribeAfter)
			}
		})
	}
	all.Wait()
	return nil
}

// listen hears one shard's channel until ctx ends or the subscription is lost.
func (s *store) listen(ctx context.Context, shard int, heard func(int, plan.Tier)) {
	sub := s.client.SSubscribe(ctx, s.names[shard]+":wake")
	defer sub.Close()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() }) // or it would wait for the next message
	defer stop()
	for {
		message, err := sub.Receive(ctx)
		if err != nil {
			return
		}
		switch m := message.(type) {
		case *redis.Subscription:
			heard(shard, plan.Player) // what came before it was in force was missed
			heard(shard, plan.Background)
		case *redis.Message:
			if tier, err := strconv.Atoi(m.Payload); err == nil {
				heard(shard, plan.Tier(tier))
			}
		}
	}
}

// Usage implements plan.Store.
func (s *store) Usage(ctx context.Context, shard int, after string, limit int) ([]plan.UsageEvent, error) {
	r, err := s.invoke(ctx, "usage", call{function: "usage", keys: []string{s.names[shard] + ":usage"},
		args: []any{after, limit}})
	if err != nil {
		return nil, err
	}
	entries := r.list()
	events := make([]plan.UsageEvent, 0, len(entries.v))
	for len(entries.v) > 0 && !entries.bad {
		entry := entries.list()
		events = append(events, entry.event())
		entries.bad = entries.bad || entry.bad
	}
	r.bad = r.bad || entries.bad
	return events, r.done("usage", 0)
}

// Depth implements plan.Store.
func (s *store) Depth(ctx context.Context, shard int) (plan.Depth, error) {
	r, err := s.invoke(ctx, "depth", call{function: "depth", keys: s.requests(shard)})
	if err != nil {
		return plan.Depth{}, err
	}
	l := plan.Depth{Players: r.number(), Background: r.number(), Busy: r.number(), Dead: r.number(), Usage: r.number(),
		Oldest: time.Duration(r.number()) * time.Millisecond}
	return l, r.done("depth", 0)
}

// Letters implements plan.Store.
func (s *store) Letters(ctx context.Context, shard int) ([]plan.Letter, error) {
	r, err := s.invoke(ctx, "letters", call{function: "letters", keys: s.requests(shard)})
	if err != nil {
		return nil, err
	}
	requests, deaths := r.requests(), r.list()
	letters := make([]plan.Letter, 0, len(requests))
	for _, q := range requests {
		letters = append(letters, plan.Letter{Request: q, Error: deaths.text(),
			At: time.UnixMilli(int64(deaths.number()))})
	}
	r.bad = r.bad || deaths.bad
	return letters, r.done("letters", 0)
}

// Replay implements plan.Store.
func (s *store) Replay(ctx context.Context, shard int, id string) error {
	return s.letter(ctx, shard, id, "replay")
}

// Drop implements plan.Store.
func (s *store) Drop(ctx context.Context, shard int, id string) error {
	return s.letter(ctx, shard, id, "drop")
}

func (s *store) letter(ctx context.Context, shard int, id, what string) error {
	_, err := s.invoke(ctx, what, call{function: "letter", keys: s.requests(shard), args: []any{id, what}})
	if code, ok := errors.AsType[*codeError](err); ok {
		switch code.code {
		case "none":
			return plan.ErrNoLetter
		case "flight":
			return plan.ErrInFlight
		}
	}
	return err
}
