package gatewayws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/overload"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// counting applies everything.
type counting struct{ moves, acts atomic.Int64 }

func (c *counting) Move(context.Context, tile.Intent) (tile.Result, error) {
	c.moves.Add(1)
	return tile.Result{Outcome: stream.Applied}, nil
}

func (c *counting) Act(context.Context, admission.Action) (admission.Artifact, error) {
	c.acts.Add(1)
	return admission.Artifact{Outcome: stream.Applied}, nil
}

func (c *counting) Outcome(context.Context, string, string) (admission.Artifact, error) {
	return admission.Artifact{}, admission.ErrUnknownAction
}

// busyHandler is one whose turns are all taken until free is called.
func busyHandler(t *testing.T) (h *Handler, behind *counting, url string, free func()) {
	behind = &counting{}
	h, err := New(behind, func(*http.Request) (session.Identity, error) {
		return session.Identity{Actor: "ann"}, nil
	}, nil)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, h.Drain(ctx))
		server.Close()
	})
	taken := 0
	for h.cfg.turns.Stats(time.Now()).Waiting == 0 {
		h.cfg.turns.Submit(time.Now(), overload.Request{Holder: "others"}, func(error) {})
		taken++
	}
	return h, behind, "ws" + strings.TrimPrefix(server.URL, "http"), func() {
		for range taken {
			h.cfg.turns.Leave(time.Now())
		}
	}
}

// A gateway that has no room refuses a movement at once, and takes an action in the place of one. The client sends no
// other movement until the time is over that the gateway named, so that it costs the gateway nothing.
func TestMovementsGiveWayToActions(t *testing.T) {
	h, behind, url, free := busyHandler(t)
	client, err := Dial(t.Context(), url, nil)
	require.NoError(t, err)
	for i := 1; i < mostWaiting; i++ {
		h.cfg.turns.Submit(time.Now(), overload.Request{Holder: fmt.Sprint(i), Class: overload.Move}, func(err error) {
			if err == nil {
				go h.cfg.turns.Leave(time.Now())
			}
		})
	}
	move := Request{Tile: 1, Kind: admission.Move}
	_, err = client.Do(t.Context(), move)
	require.ErrorIs(t, err, tile.ErrOverloaded)
	refused, _ := errors.AsType[*Error](err)
	require.True(t, refused.Retryable)
	require.GreaterOrEqual(t, refused.RetryAfter, 250*time.Millisecond)
	refusals := h.Stats().Overloaded
	began := time.Now()
	_, err = client.Do(t.Context(), move)
	require.ErrorIs(t, err, tile.ErrOverloaded)
	require.Equal(t, refusals, h.Stats().Overloaded, "the client answered")

	acted := make(chan error, 1)
	go func() {
		_, err := client.Do(t.Context(), Request{Tile: 1, Kind: admission.Act, Action: "a", Asset: "mana", Cost: 1})
		acted <- err
	}()
	waittest.Until(t, func() bool { return h.Stats().Overloaded > refusals }, 5*time.Second, time.Millisecond,
		"a movement made room for it")
	free()
	require.NoError(t, <-acted)
	require.EqualValues(t, 1, behind.acts.Load())
	waittest.Until(t, func() bool {
		_, err := client.Do(t.Context(), move)
		return err == nil
	}, 10*time.Second, 10*time.Millisecond)
	require.GreaterOrEqual(t, time.Since(began), refused.RetryAfter-50*time.Millisecond)
	require.NoError(t, client.Close())
}

// An intent begins after what other clients have sent is read. A scheduler that takes the processor from a goroutine
// changes the order now and then, so most of many rounds count.
func TestReadingGoesFirst(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const rounds, clients = 100, turnsPerProcessor
	good := 0
	for range rounds {
		s := conn{cfg: &Config{turns: overload.New(clients, mostWaiting, beginTarget)}, sess: new(gate.Session),
			workerPool: new(workerPool)}
		var read, ran sync.WaitGroup
		var submitted, before atomic.Int64
		before.Store(clients)
		begin := make(chan struct{})
		for range clients {
			ran.Add(1)
			read.Go(func() {
				<-begin
				submitted.Add(1)
				s.inTurn(&intentFrame{Kind: admission.Move}, func(error) {
					defer ran.Done()
					before.Store(min(before.Load(), submitted.Load()))
				})
			})
		}
		runtime.Gosched() // all wait
		close(begin)
		read.Wait()
		ran.Wait()
		if before.Load() == clients {
			good++
		}
	}
	require.Greater(t, good, rounds/2)
}

// A movement that has waited for longer than its player does is not begun.
func TestWhatIsTooOldIsNotBegun(t *testing.T) {
	h, behind, url, free := busyHandler(t)
	client, err := Dial(t.Context(), url, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err = client.Do(ctx, Request{Tile: 1, Kind: admission.Move})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	waittest.Until(t, func() bool { return h.Stats().Waiting == 2 }, 5*time.Second, time.Millisecond)
	time.Sleep(50 * time.Millisecond)
	free()
	_, err = client.Do(t.Context(), Request{Tile: 1, Kind: admission.Move})
	require.NoError(t, err)
	require.EqualValues(t, 1, behind.moves.Load())
	require.NoError(t, client.Close())
}
