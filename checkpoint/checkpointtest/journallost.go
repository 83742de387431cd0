package checkpointtest

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// errLost is what the caller of a lossy journal sees.
var errLost = errors.New("no answer")

// lossy is a way to a journal on which requests and answers are lost. The caller cannot tell which, and a request that
// was lost may arrive later.
type lossy struct {
	checkpoint.JournalStore
	rng  *rand.Rand
	late []func(context.Context)

	before, after, delayed, refused int // how often it happened
}

func (l *lossy) call(ctx context.Context, tile fence.TileID, request func(context.Context) error) error {
	if n := len(l.late); n > 0 && l.rng.IntN(4) == 0 {
		i := l.rng.IntN(n)
		l.late[i](ctx)
		l.late = append(l.late[:i], l.late[i+1:]...)
	}
	unknown := &fence.StoreError{Op: "journal", Tile: tile, Outcome: fence.ErrUnknownOutcome, Err: errLost}
	switch l.rng.IntN(6) {
	case 0:
		l.before++
		return unknown
	case 1:
		l.delayed++
		l.late = append(l.late, func(ctx context.Context) {
			if errors.As(request(ctx), new(*fence.RefusedError)) {
				l.refused++
			}
		})
		return unknown
	case 2:
		if err := request(ctx); err != nil {
			return err
		}
		l.after++
		return unknown
	}
	return request(ctx)
}

func (l *lossy) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	return l.call(ctx, tile, func(ctx context.Context) error { return l.JournalStore.Append(ctx, tile, e) })
}

func (l *lossy) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	return l.call(ctx, tile, func(ctx context.Context) error { return l.JournalStore.Seal(ctx, tile, epoch) })
}

func (l *lossy) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	return l.call(ctx, tile, func(ctx context.Context) error { return l.JournalStore.Base(ctx, tile, s) })
}

// testLost loses appends before they are applied and after, and applies some of them late. An owner presents the
// same entry until it is answered, and then the next one; now and then a successor takes over, or the owner lays
// another base. Every entry that was answered is in the journal, once, in order, and nothing that comes late changes
// that.
func testLost(t *testing.T, h JournalHarness) {
	l := &lossy{JournalStore: h.Journal, rng: seed.Rand(t)}
	insist := func(call func() error) {
		t.Helper()
		for {
			err := call()
			if !errors.Is(err, fence.ErrUnknownOutcome) {
				require.NoError(t, err)
				return
			}
		}
	}
	epoch, base := fence.Epoch(1), snapshot(1, 1, nil)
	insist(func() error { return l.Base(t.Context(), tile, base) })
	var want []fence.Entry
	at := base.Position
	for round := range 150 {
		switch l.rng.IntN(25) {
		case 0:
			epoch++
			insist(func() error { return l.Seal(t.Context(), tile, epoch) })
		case 1:
			epoch++
			s := snapshot(epoch, at.Seq+10, nil)
			insist(func() error { return l.Base(t.Context(), tile, s) })
			at, want = s.Position, nil
		}
		e := entry(tile, epoch, at, noise(round%40))
		insist(func() error { return l.Append(t.Context(), tile, e) })
		want, at = append(want, e), e.Position
	}
	for _, arrive := range l.late {
		arrive(t.Context())
	}
	tailIs(t, h.Other, tile, want[0].Seq-1, want...)
	t.Logf("lost %d requests and %d answers, delayed %d requests, of which %d were refused", l.before, l.after,
		l.delayed, l.refused)
	require.Positive(t, min(l.before, l.after, l.delayed, l.refused), "each has to come up")
}
