//go:build unix

package campaign

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
)

// Times of the supervisor.
const (
	lookEvery    = 50 * time.Millisecond
	silentFor    = 400 * time.Millisecond  // a worker that does not answer for so long is suspected
	pendingFor   = 1500 * time.Millisecond // a tile frozen for so long is given to another worker, if the run says so
	orderGrace   = 2 * time.Second         // an ordered worker is given so long before another one is
	rebalanceGap = 700 * time.Millisecond
)

// supervisor ensures that every tile has an owner: it watches the workers and orders another one to take over
// the tiles of a worker that is dead, silent or stuck. It does not decide ownership; the authority does, and an
// order to the wrong worker costs a take-over.
type supervisor struct {
	control *controller
	workers []*workerSlot
	ids     []fence.TileID // sorted, so that a seed repeats their order

	takeFrozen bool        // also take tiles from owners that answer but do not get on
	followers  bool        // every tile has a warm follower, which may take it by itself
	rebalance  atomic.Bool // move tiles for no reason

	mu    sync.Mutex
	rng   *rand.Rand
	tiles map[fence.TileID]*placement
}

// placement is where a tile is thought to be.
type placement struct {
	worker   *workerSlot
	ordered  time.Time
	status   tileStatus
	frozen   time.Time // since when it has been seen pending; zero if it is not
	followed time.Time // when a warm follower was last seen or ordered
}

func (s *supervisor) run(ctx context.Context) {
	moved := time.Now()
	for ctx.Err() == nil {
		s.look(ctx)
		for _, id := range s.ids {
			s.place(ctx, id)
		}
		if s.rebalance.Load() && time.Since(moved) > rebalanceGap {
			moved = time.Now()
			s.move(ctx)
		}
		time.Sleep(lookEvery)
	}
}

// look asks every worker how it is.
func (s *supervisor) look(ctx context.Context) {
	var wg sync.WaitGroup
	for _, w := range s.workers {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, silentFor/2)
			defer cancel()
			if r, err := s.control.tell(ctx, w.orders, order{}); err == nil {
				s.heard(w, r.Tiles)
			}
		})
	}
	wg.Wait()
}

func (s *supervisor) heard(w *workerSlot, found map[fence.TileID]tileStatus) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.heard, w.taking = time.Now(), false
	for _, t := range found {
		w.taking = w.taking || t.taking()
	}
	for id, p := range s.tiles {
		switch t, known := found[id]; {
		case known && t.State == tile.Following:
			p.followed = w.heard
			if p.worker != w {
				continue
			}
		case p.worker == w:
		case known && t.State == tile.Serving && t.Epoch > p.status.Epoch: // a follower took it
			*p = placement{worker: w, ordered: p.ordered}
		default:
			continue
		}
		p.status = found[id] // none: the worker is a new one and does not know of it
		switch {
		case !p.status.Pending:
			p.frozen = time.Time{}
		case p.frozen.IsZero():
			p.frozen = time.Now()
		}
	}
}

// place gives a tile without a living owner to a worker, and one without a follower a follower. What becomes of an
// order, another look shows.
func (s *supervisor) place(ctx context.Context, id fence.TileID) {
	s.mu.Lock()
	p := s.tiles[id]
	var to *workerSlot
	if s.whyMove(p) != "" {
		to = s.choose(p.worker)
	}
	follower := s.wantsFollower(p)
	s.mu.Unlock()
	if to != nil {
		_ = s.order(ctx, id, to)
	} else if follower != nil {
		_, _ = s.control.tell(ctx, follower.orders, order{Follow: id})
	}
}

// wantsFollower picks a worker to follow a tile that serves and has had no follower lately.
func (s *supervisor) wantsFollower(p *placement) *workerSlot {
	if !s.followers || p.worker == nil || p.status.State != tile.Serving || time.Since(p.followed) < silentFor {
		return nil
	}
	w := s.choose(p.worker)
	if w == nil || w == p.worker {
		return nil
	}
	p.followed = time.Now()
	return w
}

// whyMove says why a tile needs another owner; empty if it does not.
func (s *supervisor) whyMove(p *placement) string {
	switch {
	case p.worker == nil:
		return "homeless"
	case time.Since(p.worker.heard) > silentFor:
		return "silent"
	case time.Since(p.ordered) < orderGrace && p.status.Err == "":
		return "" // it has just been ordered
	case p.status.State == 0, p.status.State == tile.StoodDown, p.status.State == tile.Stopped,
		p.status.State == tile.Following && time.Since(p.ordered) > orderGrace:
		return "ended"
	case s.takeFrozen && !p.frozen.IsZero() && time.Since(p.frozen) > pendingFor:
		return "frozen"
	}
	return ""
}

// choose picks a worker that answers, another one than the last if there is one. The caller holds mu.
func (s *supervisor) choose(not *workerSlot) *workerSlot {
	var fit, last *workerSlot
	for _, i := range s.rng.Perm(len(s.workers)) {
		switch w := s.workers[i]; {
		case time.Since(w.heard) > silentFor:
		case w == not:
			last = w
		default:
			fit = w
		}
	}
	return cmp.Or(fit, last)
}

// move gives a tile to another worker without need: by a hand-over, or by a take-over.
func (s *supervisor) move(ctx context.Context) {
	s.mu.Lock()
	id := s.ids[s.rng.IntN(len(s.ids))]
	p := s.tiles[id]
	from := p.worker
	var to *workerSlot
	if from != nil && p.status.State == tile.Serving {
		to = s.choose(from)
	}
	gently := s.rng.IntN(2) == 0
	s.mu.Unlock()
	switch {
	case to == nil || to == from:
	case gently: // heard shows whether it was taken
		_, _ = s.control.tell(ctx, from.orders, order{Give: id, To: to.contact})
	default:
		_ = s.order(ctx, id, to) // another look shows whether it arrived
	}
}

// order gives a tile to a worker.
func (s *supervisor) order(ctx context.Context, id fence.TileID, to *workerSlot) error {
	s.mu.Lock()
	*s.tiles[id] = placement{worker: to, ordered: time.Now()}
	s.mu.Unlock()
	_, err := s.control.tell(ctx, to.orders, order{Own: id})
	return err
}

// returned notes that a tile is, as far as the authority knows, at a worker that has been silent.
func (s *supervisor) returned(id fence.TileID, to *workerSlot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.heard = time.Now()
	*s.tiles[id] = placement{worker: to, ordered: to.heard}
}

// where is a tile's worker; nil while it has none.
func (s *supervisor) where(id fence.TileID) *workerSlot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tiles[id].worker
}

// of lists the tiles of a worker.
func (s *supervisor) of(w *workerSlot) []fence.TileID {
	return slices.DeleteFunc(slices.Clone(s.ids), func(id fence.TileID) bool { return s.where(id) != w })
}

// serving returns nil when every tile serves and none is frozen.
func (s *supervisor) serving() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		if w.taking && time.Since(w.heard) <= silentFor {
			return fmt.Errorf("%s is taking a tile", w.name)
		}
	}
	for _, id := range s.ids {
		p := s.tiles[id]
		switch {
		case p.worker == nil:
			return fmt.Errorf("tile %s has no owner", id)
		case time.Since(p.worker.heard) > silentFor:
			return fmt.Errorf("tile %s: %s does not answer", id, p.worker.name)
		case p.status.State != tile.Serving || p.status.Pending:
			return fmt.Errorf("tile %s: %s", id, p)
		}
	}
	return nil
}

func (p *placement) String() string {
	if p.worker == nil {
		return "nowhere"
	}
	t := &p.status
	return fmt.Sprintf("%s at %s, epoch %d, position %s, pending %v, for %v %s", t.State, p.worker.name, t.Epoch,
		t.Position, t.Pending, time.Since(t.Since).Round(time.Millisecond), t.Err)
}

// state describes every tile, for a report of what hung.
func (s *supervisor) state() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	for _, id := range s.ids {
		lines = append(lines, fmt.Sprintf("tile %s: %s", id, s.tiles[id]))
	}
	return lines
}
