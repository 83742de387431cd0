package match_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/memmatch"
)

// far is a store at the other end of a network: a match that is dissolved takes as long as a call.
type far struct{ *memmatch.Store }

func (f far) Dissolve(ctx context.Context, shard, id string, why match.Why) error {
	time.Sleep(2 * time.Millisecond)
	return f.Store.Dissolve(ctx, shard, id, why)
}

// TestWorkersPauseWithoutSeats: while no tile has a seat, workers make matches a few times a second, not as fast as the
// store dissolves them.
func TestWorkersPauseWithoutSeats(t *testing.T) {
	const tickets, workers, long = 40, 2, 2 * time.Second
	store := far{memmatch.New()}
	queue := match.Queue{Name: "q", Max: 2, Strategy: match.Batch{}}
	lobby, err := match.NewLobby(store, queue)
	require.NoError(t, err)
	seats, err := match.NewSeatAllocator(store, "q", 0)
	require.NoError(t, err)
	for i := range tickets {
		id := fmt.Sprint("t", i)
		_, err := lobby.Enqueue(t.Context(), "q", match.Ticket{ID: id, Players: []match.Player{{ID: id}}})
		require.NoError(t, err)
	}
	var dissolved atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	hooks := match.Hooks{Finished: func(match.FinishInfo) { dissolved.Add(1) }}
	done := make(chan error, workers)
	for range workers {
		w, err := match.NewWorker(store, seats, []match.Queue{queue}, &match.WorkerConfig{Hooks: hooks})
		require.NoError(t, err)
		go func() { done <- w.Run(ctx) }()
	}
	for range workers {
		require.NoError(t, <-done)
	}
	t.Log("dissolved", dissolved.Load())
	require.Positive(t, dissolved.Load())
	// At most every 250 ms each worker looks twice, the second time while the first look's matches are dissolved.
	require.LessOrEqual(t, dissolved.Load(), int64(workers*2*(tickets/2)*int(long/(250*time.Millisecond)+1)))
	d, err := lobby.Depth(t.Context(), "q")
	require.NoError(t, err)
	require.EqualValues(t, tickets, d.Waiting)
}
