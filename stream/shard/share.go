package shard

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
)

// Defaults of ShareConfig.
const (
	DefaultRefreshTiles = 10 * time.Second
	DefaultListTimeout  = 5 * time.Second
	DefaultRetryList    = time.Second
	DefaultMaxUnlisted  = 10_000
)

// absences is how many lists in a row must lack a tile, and no hint name it, before it is given up.
const absences = 2

// ShareConfig holds the optional settings of a Share. In every field zero means the default; none may be
// negative.
type ShareConfig struct {
	// RefreshTiles is how often the tiles of each shard are listed again. Default 10 s.
	RefreshTiles time.Duration

	// ListTimeout bounds one call of the Lister. Default 5 s.
	ListTimeout time.Duration

	// RetryList is the wait before a list that failed is tried again. Default 1 s.
	RetryList time.Duration

	// Hints, if not nil, tells of tiles before they are listed: a wake hint for a tile of a shard that is
	// held adds it at once. Whoever is to be woken by hints, as a bridge.Bridge, subscribes by itself.
	Hints fanout.HintSubscriber

	// MaxUnlisted is how many tiles at a time are added because of hints alone; further ones wait for the
	// next list. So whoever may hint cannot make this process grow. Default 10,000.
	MaxUnlisted int

	// Member are the settings of the Member.
	Member MemberConfig

	// Logger receives failures, and is the Member's too if that has none. Nil discards.
	Logger *slog.Logger
}

// ShareStats is what a Share has done since it was made, and what it holds now.
type ShareStats struct {
	Member MemberStats

	Shards     int // shards held
	Tiles      int // tiles the target works on
	Unlisted   int // of these, known from hints only
	Lists      uint64
	ListErrors uint64
	Discovered uint64 // tiles added because of a hint
	Ignored    uint64 // hints for unlisted tiles that came when there were MaxUnlisted
	AddErrors  uint64
}

// Share is a process's part in working on all tiles: it is a Member, and keeps a Target in step with the
// tiles of the shards that it holds.
type Share struct {
	member *Member
	ranges Ranges
	list   Lister
	target Target
	cfg    ShareConfig

	running atomic.Bool
	changed chan struct{} // tells the lister of a gained shard

	mu     sync.Mutex
	shards map[int]*shardTiles
	stats  ShareStats
}

// shardTiles is a shard that is held.
type shardTiles struct {
	due   time.Time // when it is listed next
	tiles map[fence.TileID]*tileInfo
}

type tileInfo struct {
	listed bool // else known from hints only
	hinted bool // since the last list
	absent int  // lists in a row that lacked it, without a hint
}

// NewShare returns a Share of a group, all of whose members have the same ranges. It does no I/O. A nil
// cfg means all defaults. A *fence.ArgumentError names what is missing or out of range.
func NewShare(leases Leases, group string, ranges Ranges, list Lister, target Target, cfg *ShareConfig) (*Share, error) {
	switch {
	case list == nil:
		return nil, &fence.ArgumentError{Field: "list", Value: "nil", Want: "a shard.Lister"}
	case target == nil:
		return nil, &fence.ArgumentError{Field: "target", Value: "nil", Want: "a shard.Target"}
	}
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Share{ranges: ranges, list: list, target: target, cfg: c, changed: make(chan struct{}, 1), shards: map[int]*shardTiles{}}
	s.member, err = NewMember(leases, group, ranges, (*shareHandler)(s), &c.Member)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Run takes part until ctx ends, then removes all tiles from the target, gives all shards back and returns
// nil; see Member.Run for the rest, and for the errors. The target is to be run beside it, and stopped
// after it, so that it is still there to finish what it is at.
func (s *Share) Run(ctx context.Context) error {
	if !s.running.CompareAndSwap(false, true) {
		return ErrRunning
	}
	defer s.running.Store(false)
	stop, err := s.subscribe()
	if err != nil {
		return err
	}
	listing, cancel := context.WithCancel(ctx)
	listed := make(chan struct{})
	go func() {
		defer close(listed)
		s.keepListing(listing)
	}()
	err = s.member.Run(ctx)
	cancel()
	<-listed
	stop()
	return err
}

func (s *Share) subscribe() (stop func(), err error) {
	var stops []func()
	stop = func() {
		for _, f := range stops {
			f()
		}
	}
	if s.cfg.Hints == nil {
		return stop, nil
	}
	for group := range fanout.HintGroups {
		one, err := s.cfg.Hints.SubscribeHints(group, s.hinted, func(bool) {})
		if err != nil {
			stop()
			return nil, err
		}
		stops = append(stops, one)
	}
	return stop, nil
}

// Stats returns the counters.
func (s *Share) Stats() ShareStats {
	member := s.member.Stats()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Member, out.Shards = member, len(s.shards)
	return out
}

// Held returns the leases of the shards that are held, in no order.
func (s *Share) Held() []Lease { return s.member.Held() }

// shareHandler is a Share as the Handler of its Member.
type shareHandler Share

func (h *shareHandler) Gained(shard int, _ Token) {
	h.mu.Lock()
	h.shards[shard] = &shardTiles{tiles: map[fence.TileID]*tileInfo{}}
	h.mu.Unlock()
	signal(h.changed)
}

func (h *shareHandler) Lost(_ context.Context, shard int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tiles []fence.TileID
	for t, info := range h.shards[shard].tiles {
		tiles = append(tiles, t)
		if !info.listed {
			h.stats.Unlisted--
		}
	}
	delete(h.shards, shard)
	h.stats.Tiles -= len(tiles)
	h.target.Remove(tiles...)
}

// hinted adds the tiles of a hint message that are of shards held here and not known.
func (s *Share) hinted(tiles []fence.TileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range tiles {
		sh := s.shards[s.ranges.Of(t)]
		if sh == nil {
			continue
		}
		if info := sh.tiles[t]; info != nil {
			info.hinted = true
			continue
		}
		if s.stats.Unlisted >= s.cfg.MaxUnlisted {
			s.stats.Ignored++
			continue
		}
		if s.add(t) {
			sh.tiles[t] = &tileInfo{hinted: true}
			s.stats.Discovered++
			s.stats.Unlisted++
			s.stats.Tiles++
		}
	}
}

// add gives tiles to the target, and is false if it does not take them. The caller holds s.mu.
func (s *Share) add(tiles ...fence.TileID) bool {
	if err := s.target.Add(tiles...); err != nil {
		s.stats.AddErrors++
		s.cfg.Logger.Warn("tiles not added", "tiles", len(tiles), "error", err)
		return false
	}
	return true
}

func (c *ShareConfig) withDefaults() (ShareConfig, error) {
	var out ShareConfig
	if c != nil {
		out = *c
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		zero  time.Duration
	}{
		{"RefreshTiles", &out.RefreshTiles, DefaultRefreshTiles},
		{"ListTimeout", &out.ListTimeout, DefaultListTimeout},
		{"RetryList", &out.RetryList, DefaultRetryList},
	} {
		if *d.value < 0 {
			return out, &fence.ArgumentError{Field: d.field, Value: *d.value, Want: "a duration, or zero for the default"}
		}
		if *d.value == 0 {
			*d.value = d.zero
		}
	}
	if out.MaxUnlisted < 0 {
		return out, &fence.ArgumentError{Field: "MaxUnlisted", Value: out.MaxUnlisted, Want: "a number of tiles, or zero for the default"}
	}
	if out.MaxUnlisted == 0 {
		out.MaxUnlisted = DefaultMaxUnlisted
	}
	if out.Logger == nil {
		out.Logger = slog.New(slog.DiscardHandler)
	}
	if out.Member.Logger == nil {
		out.Member.Logger = out.Logger
	}
	return out, nil
}
