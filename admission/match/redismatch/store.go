package redismatch

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config holds the optional settings of a Store. A zero field means its default; none may be negative.
type Config struct {
	// World is the world that the queues and seats are of. Its name and a colon begin every key and channel. Default:
	// the world without a name.
	World fence.World

	// Replicas that must have what a call has confirmed. Default 1. A master with fewer answers nothing: the calls fail
	// until a replica is back.
	Replicas int
	// NoReplicas is for servers without replicas: nothing waits for them, and a failover may lose tickets.
	NoReplicas bool
}

const (
	confirmTimeout = 500 * time.Millisecond // of a call, for the replicas to confirm it
	retryFor       = 3 * time.Second        // how long a call that failed is repeated, within its context
)

// Store keeps tickets and seats on Redis. Its methods may be called from any goroutine.
type Store struct {
	match.Backend
	own *store
}

// store implements match.Backend.
type store struct {
	client    redis.UniversalClient
	cfg       Config
	functions string // what their names begin with
	checks    redislib.Checks
	confirm   time.Duration // confirmTimeout
	retry     time.Duration // retryFor
}

var (
	_ fence.Checker     = (*Store)(nil)
	_ fence.WorldKeeper = (*Store)(nil)
)

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (s *Store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, s.own.client, s.own.cfg.World, w)
}

// New returns a store on a *redis.ClusterClient, made with redisfence.Options, or on a *redis.Client of a
// single server. It does no I/O; call Load before use. Errors: a *fence.ArgumentError.
func New(client redis.UniversalClient, cfg *Config) (*Store, error) {
	if err := redislib.Usable(client); err != nil {
		return nil, err
	}
	c := setting.Of(cfg)
	check := setting.Check{Err: c.World.Validate()}
	check.Number("Replicas", &c.Replicas, 1)
	if check.Err != nil {
		return nil, check.Err
	}
	s := &store{client: client, cfg: c, functions: "tilefence_match_", confirm: confirmTimeout, retry: retryFor}
	return &Store{Backend: s, own: s}, nil
}

// baseOf begins every key of a shard in the world without a name. It is part of the wire contract.
func baseOf(shard string) string { return "{match:" + shard + "}" }

// Enqueue implements match.Store.
func (s *store) Enqueue(
	ctx context.Context, shard string, t match.Ticket, e match.Entry,
) (match.Status, error) {
	e, err := match.CheckEntry(e)
	if err != nil {
		return match.Status{}, err
	}
	data, err := json.Marshal(t)
	if err != nil {
		return match.Status{}, err
	}
	args := []any{t.ID, data, t.Rating, millis(e.MaxWait), e.Room, e.PerSource, t.Source}
	for _, p := range t.Players {
		args = append(args, p.ID)
	}
	code, reply, err := s.call(ctx, "enqueue", baseOf(shard), args...)
	f := fields(reply)
	switch code {
	case "reused":
		return match.Status{}, denied.Reused(t.ID)
	case "open":
		return match.Status{}, &match.OpenError{Player: f.text(0), Ticket: f.text(1), Until: f.millis(2)}
	case "crowded":
		return match.Status{}, denied.Crowded(shard, f.text(0), int(f.number(1)), int(f.number(2)))
	}
	return single(shard, t.ID, reply, err)
}

// Hold implements match.Store.
func (s *store) Hold(ctx context.Context, shard string, h match.Hold) (match.Held, error) {
	_, reply, err := s.call(ctx, "hold", baseOf(shard), h.Player, h.Ticket, millis(h.For), h.Instead)
	f := fields(reply)
	return match.Held{Ticket: f.text(0), Age: time.Duration(f.number(1)) * time.Millisecond}, err
}

// Open implements match.Store.
func (s *store) Open(ctx context.Context, shard, player string) (ticket string, until time.Time, err error) {
	_, reply, err := s.call(ctx, "open", baseOf(shard), player)
	f := fields(reply)
	return f.text(0), f.millis(1), err
}

// Status implements match.Store.
func (s *store) Status(ctx context.Context, shard, ticket string) (match.Status, error) {
	_, reply, err := s.call(ctx, "read", baseOf(shard), ticket)
	return single(shard, ticket, reply, err)
}

// Cancel implements match.Store.
func (s *store) Cancel(ctx context.Context, shard, ticket string) (match.Status, error) {
	_, reply, err := s.call(ctx, "cancel", baseOf(shard), ticket)
	return single(shard, ticket, reply, err)
}

// List implements match.Store.
func (s *store) List(ctx context.Context, shard string, limit int) ([]match.Status, error) {
	_, reply, err := s.call(ctx, "list", baseOf(shard), max(limit, 0))
	if err != nil {
		return nil, err
	}
	list, err := statuses(shard, reply)
	slices.SortStableFunc(list, func(a, b match.Status) int { return a.Enqueued.Compare(b.Enqueued) })
	return list[:min(max(limit, 0), len(list))], err
}

// Depth implements match.Store.
func (s *store) Depth(ctx context.Context, shard string) (match.Depth, error) {
	_, reply, err := s.call(ctx, "depth", baseOf(shard))
	f := fields(reply)
	return match.Depth{Created: f.number(0), Waiting: f.number(1), Claimed: f.number(2), Matched: f.number(3),
		Seated: f.number(4), Cancelled: f.number(5), TimedOut: f.number(6), Matches: f.number(7), Pending: f.number(8),
		Workers: f.number(9)}, err
}

// single reads a reply that has one status, or none.
func single(shard, ticket string, reply []any, err error) (match.Status, error) {
	if err != nil {
		return match.Status{}, err
	}
	list, err := statuses(shard, reply)
	if err == nil && len(list) == 0 {
		err = denied.Unknown(ticket)
	}
	if err != nil {
		return match.Status{}, err
	}
	return list[0], nil
}

// statuses reads the server's time, then eight fields of each ticket.
func statuses(shard string, reply []any) (list []match.Status, err error) {
	now := fields(reply).millis(0)
	for i := 1; i+8 <= len(reply); i += 8 {
		f := fields(reply[i : i+8])
		st := match.Status{Shard: shard, State: match.State(f.number(1)), Enqueued: f.millis(2), Deadline: f.millis(3),
			Match: f.text(5)}
		st.Waited = now.Sub(st.Enqueued)
		if ended := f.millis(6); !ended.IsZero() {
			st.Waited = ended.Sub(st.Enqueued)
		}
		err = errors.Join(err, decode(f.text(0), &st.Ticket), decode(f.text(4), &st.Why),
			decode(f.text(7), &st.Assignment))
		list = append(list, st)
	}
	return list, err
}

func decode(text string, into any) error {
	if text == "" {
		return nil
	}
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return &fence.CorruptError{What: "ticket or match", Detail: err.Error()}
	}
	return nil
}

// Arrivals implements match.Store. It has one connection for each call.
func (s *store) Arrivals(ctx context.Context, shard string, f func()) error {
	return s.subscribe(ctx, baseOf(shard)+":arrivals", nil, func(string) { f() })
}

// Changes implements match.Store. It has one connection for each call.
func (s *store) Changes(ctx context.Context, shard string, ready func(), f func(tickets []string)) error {
	return s.subscribe(ctx, baseOf(shard)+":changes", ready, func(m string) { f(strings.Fields(m)) })
}

func (s *store) subscribe(ctx context.Context, channel string, ready func(), f func(string)) error {
	sub := s.client.SSubscribe(ctx, s.cfg.World.Key(channel))
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return failed("subscribe", err)
	}
	if ready != nil {
		ready()
	}
	messages := sub.Channel(redis.WithChannelSize(1000))
	for {
		select {
		case <-ctx.Done():
			return nil
		case m, ok := <-messages:
			if !ok {
				return failed("subscribe", redis.ErrClosed)
			}
			f(m.Payload)
		}
	}
}

// Names lists, sorted, the shards of all queues that have had a ticket ("ranked-eu/0"), and the pools of seats whose
// tiles have offered some and not withdrawn them. It is for tools: it scans the keys of every master. Errors: a
// *fence.StoreError.
func (s *Store) Names(ctx context.Context) (shards, pools []string, err error) {
	var mu sync.Mutex
	scan := func(ctx context.Context, node *redis.Client) error {
		for _, kind := range []struct {
			before, after string
			names         *[]string
		}{{"{match:", "}:meta", &shards}, {"{seats:", "}:until", &pools}} {
			keys := node.Scan(ctx, 0, s.own.cfg.World.Key(kind.before)+"*"+kind.after, 1000).Iterator()
			for keys.Next(ctx) {
				name := strings.TrimSuffix(strings.TrimPrefix(keys.Val(), s.own.cfg.World.Key(kind.before)), kind.after)
				mu.Lock()
				*kind.names = append(*kind.names, name)
				mu.Unlock()
			}
			if err := keys.Err(); err != nil {
				return err
			}
		}
		return nil
	}
	if err := redislib.EachMaster(ctx, s.own.client, scan); err != nil {
		return nil, nil, failed("scan", err)
	}
	slices.Sort(shards)
	slices.Sort(pools)
	return slices.Compact(shards), slices.Compact(pools), nil // a key may be found twice
}
