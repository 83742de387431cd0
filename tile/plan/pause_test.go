package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPausesDouble: a pause is drawn from the whole of a range that doubles with each failure, up to 30 times the
// first.
func TestPausesDouble(t *testing.T) {
	w := &Worker{cfg: WorkerConfig{Pause: time.Second}}
	for attempt, times := range map[int]int{1: 1, 2: 2, 3: 4, 4: 8, 5: 16, 6: 30, 7: 30, 90: 30} {
		most := time.Duration(times) * time.Second
		least, longest := most, time.Duration(0)
		for range 1000 {
			p := w.pauseAfter(attempt)
			require.Positive(t, p)
			least, longest = min(least, p), max(longest, p)
		}
		require.LessOrEqual(t, longest, most)
		require.Greater(t, longest, most*9/10, "attempt %d", attempt)
		require.Less(t, least, most/10, "attempt %d", attempt)
	}
}
