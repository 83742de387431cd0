package shard

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Defaults of MemberConfig.
const (
	DefaultTTL          = 3 * time.Second
	DefaultDrainTimeout = 5 * time.Second
	DefaultName         = "member"
)

// ErrRunning is returned by Run while another Run of the same Member or Share has not returned.
var ErrRunning = errors.New("already running")

// Handler does the work on the shards that a Member holds.
type Handler interface {
	// Gained says that a shard was granted. It should return soon: calls are made one at a time.
	Gained(shard int, token Token)

	// Lost says that work on the shard must cease, and returns when it has. The lease is released then,
	// unless it is lost already. ctx ends after MemberConfig.LostTimeout, when the lease is released all the
	// same, or when the drain is over.
	Lost(ctx context.Context, shard int)
}

// MemberConfig holds the optional settings of a Member. In every field zero means the default; durations
// must not be negative.
type MemberConfig struct {
	// Name begins the name of the holder, for whoever looks at the book; every Run appends random
	// characters. At most 200 bytes. Default "member".
	Name string

	// TTL is for how long leases outlive their last heartbeat. Heartbeats are three times as frequent, and
	// twelve times while shards are due to this member; each may take a third of it. From MinTTL to
	// MaxTTL. Default 3 s.
	TTL time.Duration

	// LostTimeout is how long a call of the Handler may take. If one has not returned by then, all shards
	// that it should have ceased to work on are released. Default TTL.
	LostTimeout time.Duration

	// DrainTimeout is how long Run takes at most to give everything back once its context has ended, if
	// Handler.Lost obeys its context. Default 5 s.
	DrainTimeout time.Duration

	// StandDownAfter is after how long without an answer from the store the member ceases to work on its
	// shards. Default never: two that work on a shard do no harm to a bridge or a checkpointer, but one
	// that nobody works on does.
	StandDownAfter time.Duration

	// Logger receives what is gained and lost, and failures. Nil discards.
	Logger *slog.Logger

	// Failed is called for each heartbeat that failed, from the goroutine that makes them, and must not
	// block. It may be nil.
	Failed func(error)
}

// MemberStats is what a Member has done since it was made, and what it knows now.
type MemberStats struct {
	Beats, Failed uint64    // heartbeats that were answered, and that were not
	Gained, Lost  uint64    // calls of Handler
	Overdue       uint64    // leases released although Handler.Lost had not returned
	LastBeat      time.Time // when the last answered heartbeat was sent; zero before the first

	Held    int // shards worked on
	Share   int // how many shards it may have; this and the rest as of the last heartbeat
	Holders int // how many share
	Free    int // shards nobody holds
}

// Member takes part in sharing the shards of one group: it keeps the leases it has, takes its share of
// what is free, gives back what is more than its share, and tells its Handler.
type Member struct {
	leases  Leases
	group   string
	ranges  Ranges
	handler Handler
	cfg     MemberConfig

	running atomic.Bool

	mu    sync.Mutex
	books books
	stats MemberStats
}

// NewMember returns a Member of a group, all of whose members have the same ranges. It does no I/O. A nil
// cfg means all defaults. A *fence.ArgumentError names what is missing or out of range.
func NewMember(leases Leases, group string, ranges Ranges, handler Handler, cfg *MemberConfig) (*Member, error) {
	switch {
	case leases == nil:
		return nil, &fence.ArgumentError{Field: "leases", Value: "nil", Want: "a shard.Leases"}
	case handler == nil:
		return nil, &fence.ArgumentError{Field: "handler", Value: "nil", Want: "a shard.Handler"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	try := Request{Group: group, Holder: c.Name, Beat: 1, Ranges: ranges, TTL: c.TTL}
	if err := try.Validate(); err != nil {
		return nil, err
	}
	return &Member{leases: leases, group: group, ranges: ranges, handler: handler, cfg: c}, nil
}

// Run takes part until ctx ends, then gives everything back and returns nil. While the store cannot be
// reached it keeps what it has (see MemberConfig.StandDownAfter) and takes nothing more. A *RangesError
// ends it: the group is divided otherwise, or was divided anew while the store was away; the Handler has
// lost everything then. All its goroutines have ended when it returns. It may be called again afterwards,
// as a new holder. ErrRunning if it runs already.
func (m *Member) Run(ctx context.Context) error {
	if !m.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer m.running.Store(false)
	r := &run{Member: m, holder: m.cfg.Name + "-" + rand.Text()[:13], heard: time.Now(),
		due: make(chan struct{}, 1), released: make(chan struct{}, 1), over: make(chan struct{})}
	m.mu.Lock()
	m.books = books{shards: map[int]*held{}}
	m.mu.Unlock()
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	worked := make(chan struct{})
	go func() {
		defer close(worked)
		r.work(work)
	}()
	err := r.heartbeat(ctx)
	if err == nil {
		r.drain(context.WithoutCancel(ctx))
	}
	stop() // what is still being lost has had its time
	close(r.over)
	<-worked
	return err
}

// Held returns the leases of the shards that are worked on, in no order.
func (m *Member) Held() (leases []Lease) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for s, h := range m.books.shards {
		if h.state == serving || h.state == losing {
			leases = append(leases, Lease{s, h.token})
		}
	}
	return leases
}

// Stats returns the counters, all of one moment.
func (m *Member) Stats() MemberStats {
	held := len(m.Held())
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Held = held
	return s
}

func (c *MemberConfig) withDefaults() (MemberConfig, error) {
	var out MemberConfig
	if c != nil {
		out = *c
	}
	if out.TTL == 0 {
		out.TTL = DefaultTTL
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		zero  time.Duration
	}{
		{"LostTimeout", &out.LostTimeout, out.TTL},
		{"DrainTimeout", &out.DrainTimeout, DefaultDrainTimeout},
		{"StandDownAfter", &out.StandDownAfter, 0},
	} {
		if *d.value < 0 {
			return out, &fence.ArgumentError{Field: d.field, Value: *d.value, Want: "a duration, or zero for the default"}
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if out.Name == "" {
		out.Name = DefaultName
	}
	if len(out.Name) > 200 {
		return out, &fence.ArgumentError{Field: "Name", Value: out.Name, Want: "at most 200 bytes"}
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Failed == nil {
		out.Failed = func(error) {}
	}
	return out, nil
}
