package wait_test

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait"
)

func TestBackoff(t *testing.T) {
	for _, test := range []struct {
		first, most time.Duration
		failures    int
		want        time.Duration // and not below half of it
	}{
		{time.Second, time.Minute, 0, time.Second},
		{time.Second, time.Minute, 1, time.Second},
		{time.Second, time.Minute, 4, 8 * time.Second},
		{time.Second, time.Minute, 7, time.Minute},
		{time.Minute, time.Minute, 2, time.Minute},
		{3 * time.Hour, 1000 * time.Hour, 21, 1000 * time.Hour}, // doubled so often it would be negative
		{1, math.MaxInt64, math.MaxInt, math.MaxInt64},
		{time.Hour, math.MaxInt64, 30, math.MaxInt64},
	} {
		for range 100 {
			d := wait.Backoff(test.first, test.most, test.failures)
			require.LessOrEqual(t, d, test.want, "%+v", test)
			require.GreaterOrEqual(t, d, test.want/2, "%+v", test)
		}
	}
}
