package memfence

import (
	"context"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// Store is a fence.Store in memory. The zero Store is not usable; see New.
type Store struct {
	fence.Store
	fence.WorldKeeper // the store takes the name and the ID of the first world whose ID is known
	own               *store
}

type store struct {
	ttl   time.Duration
	mu    sync.Mutex // guards tiles, not what they point to
	tiles map[fence.TileID]*slot
	world guard.World
}

type slot struct {
	mu      sync.Mutex
	state   State
	expires time.Time // when the owner hash evaporates
}

// EnterWorld implements fence.WorldKeeper.
func (s *store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return s.world.Enter(ctx, "the store in memory", w)
}

// New returns an empty store whose owner hashes live for fence.DefaultTTL after each commit.
func New() *Store { return NewTTL(fence.DefaultTTL) }

// NewTTL returns an empty store whose owner hashes live for ttl after each commit.
func NewTTL(ttl time.Duration) *Store {
	own := &store{ttl: ttl, tiles: map[fence.TileID]*slot{}}
	return &Store{own, own, own}
}

// Update runs f on a tile's state under the tile's lock, after dropping an owner hash that has expired.
// Other back ends of the same store, and tests that break it on purpose, work through it.
func (s *Store) Update(tile fence.TileID, f func(*State)) {
	s.own.update(tile, func(sl *slot) { f(&sl.state) })
}

func (s *store) update(tile fence.TileID, f func(*slot)) {
	s.mu.Lock()
	sl := s.tiles[tile]
	if sl == nil {
		sl = &slot{}
		s.tiles[tile] = sl
	}
	s.mu.Unlock()
	sl.mu.Lock()
	defer sl.mu.Unlock()
	if sl.state.Owner.Present() && !time.Now().Before(sl.expires) {
		sl.state.Owner = fence.Owner{}
	}
	if at := sl.state.Expires; !at.IsZero() && !time.Now().Before(at) {
		sl.state = State{Collected: sl.state.Collected + 1}
	}
	f(sl)
}

// write runs one store function; refresh says whether success restarts the owner hash's time to live.
func (s *store) write(ctx context.Context, op string, tile fence.TileID, epoch fence.Epoch, refresh bool,
	f func(*State) error) error {
	err := guard.Ended(ctx, op, tile)
	if err != nil {
		return err
	}
	s.update(tile, func(sl *slot) {
		st := &sl.state
		if reason := f(st); reason != nil {
			current := st.Owner
			current.Tile, current.Position = tile, st.Last()
			err = &fence.RefusedError{Reason: reason, Tile: tile, Epoch: epoch, Current: current}
		} else if refresh {
			sl.expires = time.Now().Add(s.ttl)
		}
	})
	return err
}

// Commit implements fence.Store.
func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	if err := c.Validate(); err != nil {
		return fence.Receipt{}, err
	}
	var r fence.Receipt
	err := s.write(ctx, "commit", c.Tile, c.Epoch, true, func(st *State) (err error) {
		r, err = st.Commit(&c)
		return err
	})
	return confirm(c.Tile, r, c.Replicas, err)
}

// Rebase implements fence.Store.
func (s *store) Rebase(ctx context.Context, b fence.Rebase) (fence.Receipt, error) {
	if err := b.Validate(); err != nil {
		return fence.Receipt{}, err
	}
	var r fence.Receipt
	err := s.write(ctx, "rebase", b.Tile, b.Epoch, true, func(st *State) (err error) {
		r, err = st.Rebase(&b, now())
		return err
	})
	return confirm(b.Tile, r, b.Replicas, err)
}

// SaveSnapshot implements fence.Store.
func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	if err := w.Validate(); err != nil {
		return err
	}
	return s.write(ctx, "snapshot", w.Tile, w.Position.Epoch, false, func(st *State) error {
		return st.SaveSnapshot(&w, now())
	})
}

// Owner implements fence.Store.
func (s *store) Owner(ctx context.Context, tile fence.TileID) (fence.Owner, error) {
	if err := guard.Call(ctx, "owner", tile); err != nil {
		return fence.Owner{}, err
	}
	o := fence.Owner{Tile: tile}
	s.update(tile, func(sl *slot) {
		if st := &sl.state; st.Owner.Present() {
			o = st.Owner
		}
	})
	return o, nil
}

// Confirm implements fence.Store. Memory has no replicas, so what it holds is confirmed.
func (s *store) Confirm(ctx context.Context, tile fence.TileID, at fence.Position) (err error) {
	if err = guard.Call(ctx, "confirm", tile); err != nil {
		return err
	}
	s.update(tile, func(sl *slot) {
		if !sl.state.Holds(at) {
			err = &fence.UnconfirmedError{Tile: tile, Receipt: fence.Receipt{Position: at},
				Detail: "the stream does not have this position"}
		}
	})
	return err
}

// now is the store's clock, in milliseconds as Redis has it.
func now() time.Time { return fence.FromMillis(time.Now().UnixMilli()) }

// confirm fails a write that asked for replicas: memory has none, so AllReplicas is satisfied and a
// count is not.
func confirm(tile fence.TileID, r fence.Receipt, want int, err error) (fence.Receipt, error) {
	if err == nil && want > 0 {
		return fence.Receipt{}, &fence.UnconfirmedError{Tile: tile, Receipt: r, Want: want}
	}
	return r, err
}
