package bridge

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestSchedule compares two schedules that share their dates with a list, through random changes.
func TestSchedule(t *testing.T) {
	rng := seeded(t)
	began := time.Now()
	var schedules [2]schedule
	dates := make([]date, 200)
	for i := range dates {
		dates[i].tile = &tile{failures: i}
	}
	for range 20_000 {
		d := &dates[rng.IntN(len(dates))]
		switch rng.IntN(4) {
		case 0:
			d.clear()
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
			taken := s.take(now, limit)
			require.Len(t, taken, min(want, limit))
			for i, due := range taken {
				at := dates[due.failures].at
				require.Nil(t, dates[due.failures].in)
				require.True(t, i == 0 || !at.Before(dates[taken[i-1].failures].at), "earliest first")
				if first, ok := s.first(); ok {
					require.False(t, at.After(first))
				}
			}
		default:
			d.set(&schedules[rng.IntN(2)], began.Add(time.Duration(rng.IntN(100))))
		}
	}
}
