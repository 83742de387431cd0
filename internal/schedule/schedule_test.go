package schedule

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSchedule compares two schedules that share their dates with a list, through random changes.
func TestSchedule(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	began := time.Now()
	var schedules [2]Schedule[int]
	dates := make([]Date[int], 200)
	for i := range dates {
		dates[i].Of = i
	}
	for range 20_000 {
		d := &dates[rng.IntN(len(dates))]
		switch rng.IntN(4) {
		case 0:
			d.Clear()
		case 1:
			s := &schedules[rng.IntN(2)]
			now := began.Add(time.Duration(rng.IntN(50)))
			limit := rng.IntN(20)
			want := 0
			for i := range dates {
				if dates[i].in == s && !dates[i].at.After(now) {
					want++
				}
			}
			taken := s.Take(now, limit)
			require.Len(t, taken, min(want, limit))
			for i, due := range taken {
				at := dates[due].at
				require.Nil(t, dates[due].in)
				require.True(t, i == 0 || !at.Before(dates[taken[i-1]].at), "earliest first")
				if first, ok := s.First(); ok {
					require.False(t, at.After(first))
				}
			}
		default:
			d.Set(&schedules[rng.IntN(2)], began.Add(time.Duration(rng.IntN(100))))
		}
	}
}
