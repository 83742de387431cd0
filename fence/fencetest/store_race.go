package fencetest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// raceDuplicates presents each batch many times at once, as a client library that retries by itself
// does: one lands, and every other caller gets its answer.
func raceDuplicates(s *scene) {
	const callers = 8
	var prev fence.Position
	for seq := range fence.Seq(25) {
		c := s.batch(1, prev)
		c.Install = seq == 0
		var fresh atomic.Int32
		var wg sync.WaitGroup
		for range callers {
			wg.Go(func() {
				r, err := s.Store.Commit(s.Context(), c)
				assert.NoError(s, err)
				assert.Equal(s, c.Next(), r.Position)
				if !r.Duplicate {
					fresh.Add(1)
				}
			})
		}
		wg.Wait()
		require.EqualValues(s, 1, fresh.Load())
		prev = c.Next()
	}
	require.Len(s, s.Entries(s.tile), 25)
	require.NoError(s, CheckHistory(s.tile, s.Entries(s.tile)))
}

// contest is one tile that several claimants fight for, each with epochs of its own.
type contest struct {
	*scene
	mint atomic.Uint64

	mu       sync.Mutex
	applied  map[fence.Position]string // acknowledged batches that were not duplicates, and whose they are
	repeated map[fence.Position]string // acknowledged duplicates
}

// raceRivals lets claimants mint epochs and commit under them at the same time, and checks the stream
// they leave: one history, within an epoch one claimant, every acknowledged batch in it exactly once.
func raceRivals(s *scene) {
	const claimants, epochs = 6, 8
	source := seed.Of(s.T)
	c := &contest{scene: s, applied: map[fence.Position]string{}, repeated: map[fence.Position]string{}}
	var wg sync.WaitGroup
	for i := range claimants {
		own := rand.New(rand.NewPCG(source, uint64(i)))
		wg.Go(func() {
			for range epochs {
				c.reign(fmt.Sprintf("claimant-%d", i), own)
			}
		})
	}
	wg.Wait()
	if !s.Failed() {
		c.check()
	}
}

// reign mints an epoch and commits under it until it is stopped.
func (c *contest) reign(name string, rng *rand.Rand) {
	epoch := fence.Epoch(c.mint.Add(1))
	var prev fence.Position
	installed := false
	for turn := range 200 {
		next := fence.Commit{Tile: c.tile, Epoch: epoch, Contact: name, Prev: prev, Tick: fence.Tick(prev.Seq),
			Payload: fmt.Appendf(nil, "%s under %d, turn %d", name, epoch, turn), Install: !installed ||
				rng.IntN(20) == 0}
		if !installed && rng.IntN(8) == 0 {
			if at, ok := c.reset(name, epoch, prev); ok {
				prev, installed = at, true
			}
			continue
		}
		at, refusal := c.present(next, rng)
		switch {
		case refusal == nil:
			prev, installed = at, true
		case installed:
			// A reign ends by a successor only; no other process writes under this epoch.
			assert.ErrorIs(c, refusal, fence.ErrStale)
			assert.Greater(c, refusal.Current.Epoch, epoch)
			return
		case errors.Is(refusal, fence.ErrStale):
			return
		default:
			assert.ErrorIs(c, refusal, fence.ErrReplay)
			prev = refusal.Current.Position
		}
		if installed && rng.IntN(12) == 0 {
			return // and be silent: the next claimant takes over from a living owner all the same
		}
	}
}

// present commits c once or twice at the same time.
func (c *contest) present(next fence.Commit, rng *rand.Rand) (fence.Position, *fence.RefusedError) {
	var wg sync.WaitGroup
	var refusal atomic.Pointer[fence.RefusedError]
	var done atomic.Bool
	for range 1 + rng.IntN(2) {
		wg.Go(func() {
			r, err := c.Store.Commit(c.Context(), next)
			var refused *fence.RefusedError
			switch {
			case err == nil:
				done.Store(true)
				c.acknowledge(r, next)
			case errors.As(err, &refused):
				refusal.Store(refused)
			default:
				assert.NoError(c, err)
			}
		})
	}
	wg.Wait()
	if done.Load() {
		return next.Next(), nil // a successor may have come between the two
	}
	return fence.Position{}, refusal.Load()
}

func (c *contest) acknowledge(r fence.Receipt, next fence.Commit) {
	c.mu.Lock()
	defer c.mu.Unlock()
	assert.Equal(c, next.Next(), r.Position)
	if r.Duplicate {
		c.repeated[r.Position] = string(next.Payload)
		return
	}
	assert.NotContains(c, c.applied, r.Position)
	c.applied[r.Position] = string(next.Payload)
}

// reset makes the claimant own the tile by a rebase.
func (c *contest) reset(name string, epoch fence.Epoch, last fence.Position) (fence.Position, bool) {
	r, err := c.Store.Rebase(c.Context(), fence.Rebase{Tile: c.tile, Epoch: epoch, Contact: name, Seq: last.Seq + 100,
		Tick: fence.Tick(last.Seq), Blob: []byte(name)})
	if err != nil {
		assert.True(c, errors.Is(err, fence.ErrStale) || errors.Is(err, fence.ErrBehind), "%v", err)
	}
	return r.Position, err == nil
}

func (c *contest) check() {
	entries := c.Entries(c.tile)
	require.NoError(c, CheckHistory(c.tile, entries))
	owners := map[fence.Epoch]string{}
	inStream := map[fence.Position]string{}
	for _, e := range entries {
		if e.Kind == fence.KindRebase {
			continue
		}
		inStream[e.Position] = string(e.Payload)
		name, _, _ := strings.Cut(string(e.Payload), " ")
		if owners[e.Epoch] == "" {
			owners[e.Epoch] = name
		}
		require.Equal(c, owners[e.Epoch], name, "epoch %d", e.Epoch)
	}
	require.Equal(c, inStream, c.applied)
	for at, payload := range c.repeated {
		require.Equal(c, inStream[at], payload)
	}
	require.Equal(c, entries[len(entries)-1].Position, c.owner().Position)
	c.Logf("%d entries under %d epochs, %d answers to duplicates", len(entries), len(owners), len(c.repeated))
}
