package retry

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestRetryEndsByItsLimitAndItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		busy := &fence.StoreError{Op: "test", Outcome: fence.ErrNotApplied, Err: errors.New("busy")}
		reports := 0
		count := func(error) { reports++ }
		began := time.Now()
		assert.ErrorIs(t, Do(t.Context(), time.Second, count, func() error { return busy }), fence.ErrNotApplied)
		assert.InDelta(t, 1, time.Since(began).Seconds(), 0.4)
		assert.Greater(t, reports, 3)

		tries := 0
		require.NoError(t, Do(t.Context(), 0, count, func() error {
			if tries++; tries < 50 {
				return busy
			}
			return nil
		}))
		tries = 0
		assert.Equal(t, fence.ErrStale, Do(t.Context(), 0, count, func() error { tries++; return fence.ErrStale }))
		assert.Equal(t, 1, tries, "a refusal is not repeated")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Equal(t, ErrEnded, Do(ctx, 0, count, func() error { return busy }))
	})
}
