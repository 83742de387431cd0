// Package memcheckpoint keeps checkpoints and journals in maps: a checkpoint.Backend for tests and local development.
//
//	store := memcheckpoint.New()
//
// Nothing survives the process. It links no driver and starts no goroutine, so it works inside a
// testing/synctest bubble; its few lines of logic are also what the other back ends' conditions are
// checked against. A store is safe for concurrent use.
package memcheckpoint

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

// store is a checkpoint.Backend in memory.
type store struct {
	mu       sync.Mutex
	tiles    map[fence.TileID]fence.Snapshot
	journals map[fence.TileID]*journal
	world    guard.World
}

var (
	_ checkpoint.Store  = (*store)(nil)
	_ fence.WorldKeeper = (*store)(nil)
)

// EnterWorld implements fence.WorldKeeper. The store takes the name and the ID of the first world whose ID is known.
func (st *store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return st.world.Enter(ctx, "the durable store in memory", w)
}

// New returns an empty store.
func New() checkpoint.Backend {
	return &store{tiles: map[fence.TileID]fence.Snapshot{}, journals: map[fence.TileID]*journal{}}
}

// Put implements checkpoint.Store.
func (st *store) Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := cmp.Or(checkpoint.ValidatePut(tile, &s), guard.Ended(ctx, "checkpoint put", tile)); err != nil {
		return err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if stored, ok := st.tiles[tile]; ok {
		head := checkpoint.HeadOf(tile, &stored)
		if write, err := head.Judge(&s); !write {
			return err
		}
	}
	s.Blob = slices.Clone(s.Blob)
	st.tiles[tile] = s
	return nil
}

// Get implements checkpoint.Store.
func (st *store) Get(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := cmp.Or(guard.Tile(tile), guard.Ended(ctx, "checkpoint get", tile)); err != nil {
		return fence.Snapshot{}, false, err
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	s, found := st.tiles[tile]
	if !found {
		return fence.Snapshot{}, false, nil
	}
	if err := s.Verify(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	s.Blob = slices.Clone(s.Blob)
	return s, true, nil
}

// List implements checkpoint.Store.
func (st *store) List(ctx context.Context) iter.Seq2[checkpoint.Head, error] {
	return func(yield func(checkpoint.Head, error) bool) {
		if err := guard.Ended(ctx, "checkpoint list", 0); err != nil {
			yield(checkpoint.Head{}, err)
			return
		}
		st.mu.Lock()
		heads := make([]checkpoint.Head, 0, len(st.tiles))
		for tile, s := range st.tiles {
			heads = append(heads, checkpoint.HeadOf(tile, &s))
		}
		st.mu.Unlock()
		for _, h := range heads {
			if !yield(h, nil) {
				return
			}
		}
	}
}

// Damage flips a bit of a stored blob, for tests of what happens then; false when there is none to flip.
func (st *store) Damage(tile fence.TileID) bool {
	st.mu.Lock()
	defer st.mu.Unlock()
	s := st.tiles[tile]
	if len(s.Blob) == 0 {
		return false
	}
	s.Blob = slices.Clone(s.Blob)
	s.Blob[len(s.Blob)/2] ^= 1
	st.tiles[tile] = s
	return true
}
