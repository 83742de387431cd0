package tilefence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
)

// TestAwait: a server that starts waits for a back end that is away, says so, and ends at once for what does not pass.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, text := logged()
		calls := 0
		away := &fence.StoreError{Op: "load", Outcome: fence.ErrNotApplied, Err: context.DeadlineExceeded}
		require.NoError(t, tilefence.Await(t.Context(), log, "coordination Redis", func(context.Context) error {
			if calls++; calls < 5 {
				return away
			}
			return nil
		}))
		require.Equal(t, 5, calls)
		require.Equal(t, 4, text.count("waiting for a back end before starting\" backend=\"coordination Redis\""))
		wrong := &fence.SettingError{Setting: "appendonly"}
		began := time.Now()
		err := tilefence.Await(t.Context(), nil, "x", func(context.Context) error { return wrong })
		require.Equal(t, error(wrong), err)
		require.Zero(t, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = tilefence.Await(ctx, nil, "x", func(context.Context) error { return away })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, fence.ErrNotApplied)
	})
}
