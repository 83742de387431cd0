package tilefence_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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
		start := &tilefence.Starting{Logger: log}
		calls := 0
		away := &fence.StoreError{Op: "load", Outcome: fence.ErrNotApplied, Err: context.DeadlineExceeded}
		require.NoError(t, start.Await(t.Context(), "coordination Redis", func(context.Context) error {
			if calls++; calls < 5 {
				return away
			}
			return nil
		}))
		require.Equal(t, 5, calls)
		require.Equal(t, 4, text.count("waiting for a back end before starting\" backend=\"coordination Redis\""))
		wrong := errors.Join(&fence.SettingError{Setting: "appendonly"}, errors.New("another\n\tline"))
		began := time.Now()
		err := new(tilefence.Starting).Await(t.Context(), "x", func(context.Context) error { return wrong })
		require.ErrorIs(t, err, fence.ErrSetting)
		require.Regexp(t, `^x: .*appendonly.*; another; line$`, err.Error())
		require.Zero(t, time.Since(began))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err = start.Await(ctx, "x", func(context.Context) error { return away })
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, fence.ErrNotApplied)
	})
}

// TestStarting: while a back end is away, a process lives and is not ready, and says what it waits for.
func TestStarting(t *testing.T) {
	var start tilefence.Starting
	ask := func(path string) (int, string) {
		w := httptest.NewRecorder()
		start.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w.Code, w.Body.String()
	}
	wants := func(what string) {
		t.Helper()
		status, body := ask("/readyz")
		require.Equal(t, http.StatusServiceUnavailable, status)
		require.Contains(t, body, "starting: waiting for "+what)
		status, _ = ask("/livez")
		require.Equal(t, http.StatusOK, status)
	}
	wants("its back ends")
	require.NoError(t, start.Await(t.Context(), "Redis", func(context.Context) error {
		wants("Redis")
		return nil
	}))
	start.Started(http.NotFoundHandler())
	status, _ := ask("/livez")
	require.Equal(t, http.StatusNotFound, status, "the handler that was given")
}
