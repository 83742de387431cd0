package redisdirectory_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/fence/route/directory/redisdirectory"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// BenchmarkLook looks up one of 10,000 players at a time, from 16 goroutines for each core. The budget: 20,000 a second
// on one node, 99 of 100 within 5 ms.
func BenchmarkLook(b *testing.B) {
	s := redisdirectory.New(newClient(b, stacktest.Fanout(b)), fence.World{})
	actors := players(b, s, 10_000)
	var mu sync.Mutex
	var took []time.Duration
	b.SetParallelism(16)
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		var own []time.Duration
		for i := 0; pb.Next(); i++ {
			began := time.Now()
			if _, err := s.Look(b.Context(), actors[i*7919%len(actors)]); err != nil {
				b.Error(err)
				return
			}
			own = append(own, time.Since(began))
		}
		mu.Lock()
		defer mu.Unlock()
		took = append(took, own...)
	})
	slices.Sort(took)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "lookups/s")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkRenew renews the leases of 10,000 players, which a gateway does every 10 s.
func BenchmarkRenew(b *testing.B) {
	s := redisdirectory.New(newClient(b, stacktest.Fanout(b)), fence.World{})
	actors := players(b, s, 10_000)
	for b.Loop() {
		for batch := range slices.Chunk(actors, 1000) {
			_, err := s.Renew(b.Context(), "holder", batch...)
			require.NoError(b, err)
		}
	}
}

// players are so many with a lease and a place.
func players(b *testing.B, s *redisdirectory.Store, n int) []string {
	actors, moves := make([]string, n), make([]directory.Move, n)
	for i := range actors {
		actors[i] = fmt.Sprint("bench-", i)
		moves[i] = directory.Move{Actor: actors[i], To: fence.TileID(i + 1), At: time.Now()}
	}
	require.NoError(b, s.Place(b.Context(), moves...))
	_, err := s.Renew(b.Context(), "holder", actors...)
	require.NoError(b, err)
	return actors
}
