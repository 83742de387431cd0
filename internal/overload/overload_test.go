package overload

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// Callers that leave while they wait, or at the moment at which they would get a turn, take none with them.
func TestNoTurnIsLost(t *testing.T) {
	const turns = 3
	c := New(turns, 1000, time.Second)
	var inside, most atomic.Int64
	var all sync.WaitGroup
	for range 3000 {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), rand.N(3*time.Millisecond))
			defer cancel()
			if c.Enter(ctx, Request{Holder: "a"}) != nil {
				return
			}
			n := inside.Add(1)
			for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
			}
			time.Sleep(rand.N(200 * time.Microsecond))
			inside.Add(-1)
			c.Leave(time.Now())
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int64(turns))
	waittest.Until(t, func() bool { // a turn that came too late is given back by a goroutine
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.taken == 0
	}, 5*time.Second, time.Millisecond)
	for range turns {
		require.NoError(t, c.Enter(t.Context(), Request{}))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, c.Enter(ctx, Request{}), context.Canceled)
}

// leaving is a context that ends between the look whether its caller is there and the turn.
type leaving struct {
	context.Context
	left []bool // as it is asked
}

func (l *leaving) Done() <-chan struct{} {
	ended := make(chan struct{})
	close(ended)
	return ended
}

func (l *leaving) Err() error {
	left := l.left[0]
	l.left = l.left[1:]
	if left {
		return context.Canceled
	}
	return nil
}

func TestATurnThatComesTooLateIsGivenBack(t *testing.T) {
	c := New(1, 10, time.Second)
	require.NoError(t, c.Enter(t.Context(), Request{}))
	require.ErrorIs(t, c.Enter(&leaving{t.Context(), []bool{true, false}}, Request{}), context.Canceled)
	c.Leave(time.Now())
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	require.NoError(t, c.Enter(ctx, Request{}))
}
