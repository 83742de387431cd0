package tilehttp_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// answer is what a started intent was answered with.
type answer struct {
	tile.Result
	err error
}

// started returns a done of Client.Start, and its calls.
func started() (done func(tile.Result, error), answers chan answer) {
	answers = make(chan answer, 2) // the second one would be too many
	return func(r tile.Result, err error) { answers <- answer{r, err} }, answers
}

// serveQueue returns the contact of a process that queues intents, what it has queued, and a client.
func serveQueue(t *testing.T, most int) (string, *queueing, *tilehttp.Client) {
	t.Helper()
	q := &queueing{queued: make(chan func(tile.Result, error), most)}
	q.SubmitterFunc = func(_ context.Context, in tile.Intent) (tile.Result, error) {
		return tile.Result{}, &tile.RedirectError{Tile: in.Tile}
	}
	h, err := tilehttp.NewHandler(q, &tilehttp.HandlerConfig{Queue: q.Queue})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), q, newClient(t, nil)
}

// TestStartedIntentsTakeNoGoroutine, whatever their number.
func TestStartedIntentsTakeNoGoroutine(t *testing.T) {
	const n = 5000
	contact, q, client := serveQueue(t, n+1)
	done, answers := started()
	client.Start(t.Context(), contact, tile.Intent{Tile: here}, done) // makes the connection
	(<-q.queued)(tile.Result{Outcome: stream.Fizzled, Why: "locked"}, nil)
	assert.Equal(t, answer{Result: tile.Result{Outcome: stream.Fizzled, Why: "locked"}}, <-answers)

	before := runtime.NumGoroutine()
	var applied atomic.Int64
	for range n {
		client.Start(t.Context(), contact, tile.Intent{Tile: here}, func(r tile.Result, err error) {
			if err == nil && r.Outcome == stream.Applied {
				applied.Add(1)
			}
		})
	}
	waittest.Until(t, func() bool { return len(q.queued) == n }, 10*time.Second, time.Millisecond)
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+4, "of the test's own tools")
	for range n {
		(<-q.queued)(tile.Result{Outcome: stream.Applied}, nil)
	}
	waittest.Until(t, func() bool { return applied.Load() == n }, 10*time.Second, time.Millisecond)
}

// TestAStartedIntentExpires when its deadline is over, or the caller's context ends. An answer that comes later is
// dropped.
func TestAStartedIntentExpires(t *testing.T) {
	contact, q, client := serveQueue(t, 8)
	limited, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	left, leave := context.WithCancelCause(t.Context())
	defer leave(nil)
	gone := errors.New("gone")
	for name, c := range map[string]struct {
		ctx   context.Context
		until time.Duration
		cause error
	}{
		"the intent's deadline":  {t.Context(), time.Second, context.DeadlineExceeded},
		"the context's deadline": {limited, time.Hour, context.DeadlineExceeded},
		"the context":            {left, time.Hour, gone},
	} {
		done, answers := started()
		client.Start(c.ctx, contact, tile.Intent{Tile: here, Deadline: time.Now().Add(c.until)}, done)
		late := <-q.queued
		if c.ctx == left {
			leave(gone)
		}
		got := <-answers
		require.ErrorIs(t, got.err, c.cause, name)
		require.ErrorIs(t, got.err, fence.ErrUnknownOutcome, name)
		late(tile.Result{Outcome: stream.Applied}, nil)
		_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here + 1}) // an answer behind that one
		require.ErrorIs(t, err, tile.ErrRedirect, name)
		assert.Empty(t, answers, name)
	}
	done, answers := started()
	client.Start(t.Context(), contact, tile.Intent{Tile: here, Deadline: time.Now().Add(-time.Second)}, done)
	require.ErrorIs(t, (<-answers).err, fence.ErrNotApplied, "it was over before")
	assert.Empty(t, q.queued)
}

// TestAStartedIntentIsAnsweredAtOnce if there is nothing to wait for: it cannot be sent, there is no connection, too
// many are under way, or the client is closed.
func TestAStartedIntentIsAnsweredAtOnce(t *testing.T) {
	contact, q, _ := serveQueue(t, 2)
	client := newClient(t, tilehttp.Config{}.With(tilehttp.Tuning{MaxInFlight: 1}))
	start := func(contact string, size int) error {
		done, answers := started()
		client.Start(t.Context(), contact, tile.Intent{Tile: here, Body: make([]byte, size)}, done)
		require.Len(t, answers, 1)
		return (<-answers).err
	}
	require.ErrorIs(t, start(contact, 1<<20), fence.ErrInvalidArgument)
	require.ErrorIs(t, start("127.0.0.1:1", 1), fence.ErrNotApplied)
	done, answers := started()
	client.Start(t.Context(), contact, tile.Intent{Tile: here}, done)
	<-q.queued
	require.ErrorIs(t, start(contact, 1), tile.ErrOverloaded)
	client.Close()
	require.ErrorIs(t, (<-answers).err, fence.ErrUnknownOutcome)
	require.ErrorIs(t, start(contact, 1), fence.ErrNotApplied)
}

// TestStartedIntentsAreAnsweredOnce: connections break, deadlines pass and answers come, all at once.
func TestStartedIntentsAreAnsweredOnce(t *testing.T) {
	f := serveFragile(t)
	client := newClient(t, nil)
	rng := seed.Rand(t)
	const n = 2000
	var answered [n]atomic.Int32
	var waiting sync.WaitGroup
	for i := range n {
		in := tile.Intent{Tile: here, Body: []byte("move")}
		if rng.IntN(2) == 0 {
			in.Deadline = time.Now().Add(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		waiting.Add(1)
		client.Start(t.Context(), f.contact, in, func(_ tile.Result, err error) {
			answered[i].Add(1)
			if err != nil {
				_, known := errors.AsType[*tilehttp.UnavailableError](err)
				assert.True(t, known || errors.Is(err, tile.ErrOverloaded), "%v", err)
			}
			waiting.Done()
		})
		if rng.IntN(n/10) == 0 {
			f.listener.Cut()
		}
		time.Sleep(time.Duration(rng.IntN(200)) * time.Microsecond)
	}
	waiting.Wait()
	require.NoError(t, client.Drain(t.Context()))
	for i := range answered {
		require.EqualValues(t, 1, answered[i].Load())
	}
}
