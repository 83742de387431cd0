package share

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream/fanout"
)

const (
	// ttl is how long a member that is not heard stays on the list. A heartbeat is made, and may take, a third of it.
	ttl = 3 * time.Second

	// refresh is how often the next part of the list of tiles is asked for, and how long that may take.
	refresh = 10 * time.Second

	// maxMembers is more than any group has. A longer list is another program's work, and would take the tiles of all.
	maxMembers = 1024
)

// Config holds the optional settings of a Share.
type Config struct {
	// Hints, if not nil, makes tiles known before they are listed: a wake hint for a tile that is this member's
	// adds it at once. The target subscribes to the hints that wake it by itself.
	Hints fanout.HintSubscriber

	// Logger receives failures and changes of the members. Nil discards.
	Logger *slog.Logger
}

// Stats is what a Share has done since it was made, and what it holds now.
type Stats struct {
	Members    int       // members that are believed to be alive, this one included
	Tiles      int       // tiles the target works on
	LastBeat   time.Time // when the last answered heartbeat was sent; zero before the first
	BeatErrors uint64
	ListErrors uint64
	AddErrors  uint64
	Ignored    uint64 // hints for unlisted tiles of which 10,000 were known already
}

// Share is one process's part in working on all tiles. It keeps a Target in step with the tiles that are this
// process's.
type Share struct {
	members Members
	group   string
	self    string
	list    Lister
	target  Target
	cfg     Config
	remind  *slog.Logger // what may go on for long
	ran     atomic.Bool

	beating sync.Mutex    // held by a heartbeat, so that the answers come in order
	listing chan struct{} // has a token while the next part of the list is asked for
	part    Part          // the last one, without its tiles; guarded by listing

	mu      sync.Mutex
	view    view
	tiles   tiles
	pending bool // the target has not taken all
	stats   Stats
}

var groupName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,64}$`)

// New returns a Share of a group, which is named by 1 to 64 letters, digits, dots, underscores and hyphens. It does
// no I/O. A nil cfg means all defaults. A *fence.ArgumentError names what is missing or out of range.
func New(members Members, group string, list Lister, target Target, cfg *Config) (*Share, error) {
	c := setting.Of(cfg)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	var check setting.Check
	check.Refuse(members == nil, "members", "nil", "a share.Members")
	check.Refuse(!groupName.MatchString(group), "group", group,
		"1 to 64 letters, digits, dots, underscores and hyphens")
	check.Refuse(list == nil, "list", "nil", "a share.Lister")
	check.Refuse(target == nil, "target", "nil", "a share.Target")
	if check.Err != nil {
		return nil, check.Err
	}
	self := "member-" + rand.Text()[:13]
	return &Share{members: members, group: group, self: self, list: list, target: target, cfg: c,
		remind: sampled.Reminder(c.Logger), listing: make(chan struct{}, 1),
		view: view{self: self}, tiles: newTiles()}, nil
}

// Run takes part until ctx ends, then leaves the list, removes all tiles from the target, and returns nil within a
// third of the TTL. Stop the target after Run has returned, so that it can finish what it is at. The other errors are
// fence.ErrAlreadyRun and that of Config.Hints if it refuses a subscription.
func (s *Share) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return fmt.Errorf("share: %w", fence.ErrAlreadyRun)
	}
	if s.cfg.Hints != nil {
		for group := range fanout.HintGroups {
			stop, err := s.cfg.Hints.SubscribeHints(group, s.hinted, func(bool) {})
			if err != nil {
				return err
			}
			defer stop()
		}
	}
	var wg sync.WaitGroup
	wg.Go(func() { repeat(ctx, func() time.Duration { return s.refresh(ctx) }) })
	repeat(ctx, func() time.Duration {
		s.beat(ctx)
		return ttl / 3
	})
	wg.Wait()
	s.leave(context.WithoutCancel(ctx))
	return nil
}

// repeat calls f until ctx ends. f returns after how long, from when it began, it is to be called again.
func repeat(ctx context.Context, f func() time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			began := time.Now()
			timer.Reset(max(f()-time.Since(began), time.Millisecond))
		}
	}
}

// Sync makes a heartbeat and lists the tiles now, so that the target has what is this member's at this moment: tiles
// that are newer than the last list, and those of a member that has just left. It is for a target that stops before the
// share does and works on its tiles once more. What fails is logged, and the share stays as it was.
func (s *Share) Sync(ctx context.Context) {
	s.beat(ctx)
	s.refresh(ctx)
}

func (s *Share) beat(ctx context.Context) {
	s.beating.Lock()
	defer s.beating.Unlock()
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, ttl/3)
	defer cancel()
	living, known, err := s.members.Beat(call, s.group, s.self, ttl)
	if ctx.Err() != nil {
		return
	}
	if err == nil && len(living) > maxMembers {
		err = fmt.Errorf("%d members are on the list, which has %d at most: another program writes there", len(living),
			maxMembers)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var changed bool
	if err != nil {
		s.stats.BeatErrors++
		s.remind.Warn("heartbeat failed: this member keeps its tiles", "group", s.group, "error", err)
		changed = s.view.failed()
	} else {
		s.stats.LastBeat = began
		changed = s.view.answered(living, known)
	}
	if changed {
		s.cfg.Logger.Info("members changed", "group", s.group, "self", s.self, "members", s.view.names)
	}
	if changed || s.pending {
		s.apply()
	}
}

// refresh lists the tiles, as far as there is more at once, and returns when to go on.
func (s *Share) refresh(ctx context.Context) time.Duration {
	select {
	case s.listing <- struct{}{}:
		defer func() { <-s.listing }()
	case <-ctx.Done():
		return 0
	}
	for {
		part, err := s.ask(ctx)
		switch {
		case ctx.Err() != nil:
			return 0
		case err != nil:
			s.remind.Warn("tiles not listed", "group", s.group, "error", err)
			return time.Second
		case !part.More:
			return refresh
		}
	}
}

// ask asks for the next part of the list, and has the target work on what is new in it.
func (s *Share) ask(ctx context.Context) (Part, error) {
	call, cancel := context.WithTimeout(ctx, refresh)
	defer cancel()
	part, err := s.list(call, s.part)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil {
			s.stats.ListErrors++
		}
		return Part{}, err
	}
	fresh, gone := s.tiles.enter(&part)
	s.begin(fresh)
	s.end(gone)
	part.Tiles = nil
	s.part = part
	return part, nil
}

// hinted makes the tiles of a hint message known that are this member's.
func (s *Share) hinted(hints []fence.TileID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var fresh []fence.TileID
	for _, t := range hints {
		switch {
		case t == 0 || !s.mine(t):
		case !s.tiles.hint(t):
			s.stats.Ignored++
		case !s.tiles.held[t]:
			fresh = append(fresh, t)
		}
	}
	s.begin(fresh)
}

func (s *Share) mine(t fence.TileID) bool { return s.view.member(t) == s.self }

// apply brings the target in step with the tiles that are this member's, all of them. s.mu is held.
func (s *Share) apply() {
	add, remove := s.tiles.changes(s.mine)
	s.end(remove)
	s.pending = false
	s.begin(add)
}

// begin has the target work on those of some tiles that are this member's. s.mu is held.
func (s *Share) begin(tiles []fence.TileID) {
	tiles = slices.DeleteFunc(tiles, func(t fence.TileID) bool { return s.tiles.held[t] || !s.mine(t) })
	if len(tiles) == 0 {
		return
	}
	if err := s.target.Add(tiles...); err != nil {
		s.pending = true
		s.stats.AddErrors++
		s.cfg.Logger.Warn("tiles not added: the next heartbeat tries again", "group", s.group, "tiles", len(tiles),
			"error", err)
		return
	}
	for _, t := range tiles {
		s.tiles.held[t] = true
	}
}

// end has the target work on some tiles no longer. s.mu is held.
func (s *Share) end(tiles []fence.TileID) {
	tiles = slices.DeleteFunc(tiles, func(t fence.TileID) bool { return !s.tiles.held[t] })
	if len(tiles) == 0 {
		return
	}
	s.target.Remove(tiles...)
	for _, t := range tiles {
		delete(s.tiles.held, t)
	}
}

// leave hands everything over to the other members.
func (s *Share) leave(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, ttl/3)
	defer cancel()
	if err := s.members.Leave(call, s.group, s.self); err != nil {
		s.cfg.Logger.Warn("not taken off the list: the others wait for the TTL", "group", s.group, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target.Remove(slices.Collect(maps.Keys(s.tiles.held))...)
	clear(s.tiles.held)
}

// Stats returns the counters, all of one moment.
func (s *Share) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.stats
	out.Members, out.Tiles = len(s.view.names), len(s.tiles.held)
	return out
}
