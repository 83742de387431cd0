package pgfence_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// lock keeps the row of a tile locked until the function that it returns is called.
func (s *scene) lock(t *testing.T, tiles ...fence.TileID) (letGo func()) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	require.NoError(t, err)
	letGo = func() { _ = tx.Rollback(context.Background()) }
	t.Cleanup(letGo)
	for _, tile := range tiles {
		_, err = tx.Exec(t.Context(), "SELECT FROM "+s.table+" WHERE tile = $1 FOR UPDATE", int64(tile))
		require.NoError(t, err)
	}
	return letGo
}

// hold claims tiles from 1 to n.
func (s *scene) hold(t *testing.T, n int) {
	t.Helper()
	claims := make([]fence.Claim, n)
	for i := range claims {
		claims[i] = claimOf(fence.TileID(i+1), "a:1")
	}
	for _, r := range s.direct.ClaimMany(t.Context(), claims) {
		require.NoError(t, r.Err)
	}
}

// TestLockedRows: for as long as another session keeps rows locked, a thousand other tiles are promoted and released,
// at once and in single calls; those of the locked rows wait alone.
func TestLockedRows(t *testing.T) {
	const n = 1000
	s := newScene(t)
	s.hold(t, n)
	s.direct.SetWaits(250*time.Millisecond, time.Minute)
	locked := []fence.TileID{1, 500, 777}
	letGo := s.lock(t, locked...)
	bounded, cancel := context.WithTimeout(t.Context(), 30*time.Second) // with the fault they wait for letGo
	defer cancel()
	var others, waiting sync.WaitGroup
	began := time.Now()
	for i := range n {
		id, calls, ctx := fence.TileID(i+1), &others, bounded
		if slices.Contains(locked, id) {
			calls, ctx = &waiting, t.Context()
		}
		calls.Go(func() {
			c := claimOf(id, "b:1")
			c.Expected = 1
			g, err := s.direct.Promote(ctx, c)
			if err == nil {
				err = s.direct.Release(ctx, g)
			}
			assert.NoError(t, err, "tile %s", id)
		})
	}
	others.Wait()
	t.Logf("the others took %v", time.Since(began))
	for _, id := range locked {
		g, err := s.direct.Lookup(t.Context(), id)
		require.NoError(t, err)
		require.EqualValues(t, 1, g.Epoch, "the row is locked")
	}
	letGo()
	waiting.Wait()
}

// A call whose row stays locked is given up, and says why, whether it waited or had no turn to.
func TestLockedRowIsGivenUp(t *testing.T) {
	s := newScene(t)
	s.hold(t, 8)
	s.direct.SetWaits(time.Millisecond, 50*time.Millisecond)
	letGo := s.lock(t, 1, 2, 3, 4, 5, 6, 7, 8)
	promote := func(i int) error {
		c := claimOf(fence.TileID(i+1), "b:1")
		c.Expected = 1
		_, err := s.direct.Promote(t.Context(), c)
		return err
	}
	var calls sync.WaitGroup
	for i := range 8 {
		calls.Go(func() {
			err := promote(i)
			assert.ErrorIs(t, err, fence.ErrNotApplied)
			assert.ErrorContains(t, err, "pg_locks")
		})
	}
	calls.Wait()
	letGo()
	for i := range 8 {
		require.NoError(t, promote(i))
	}
}
