package socket

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
)

// TestWritePoolGivesEveryTurn: each turn that is added is written once, by few goroutines.
func TestWritePoolGivesEveryTurn(t *testing.T) {
	pool := NewWritePool()
	var written, running, most atomic.Int64
	var out sync.WaitGroup
	turns := make([]Turn, 1000)
	for i := range turns {
		turns[i].Write = func() func() {
			defer out.Done()
			now := running.Add(1)
			for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
			}
			written.Add(1)
			running.Add(-1)
			return nil
		}
	}
	for range 10 {
		out.Add(len(turns))
		for i := range turns {
			pool.Add(&turns[i])
		}
		out.Wait()
	}
	assert.EqualValues(t, 10_000, written.Load())
	assert.LessOrEqual(t, most.Load(), int64(pool.most))
}

// TestASlowConnectionHoldsUpNoOther: what does not go out at once does not keep the pool's goroutines.
func TestASlowConnectionHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := NewWritePool()
		free := make(chan struct{})
		for range 100 {
			pool.Add(&Turn{Write: func() func() { return func() { <-free } }})
		}
		wrote := false
		pool.Add(&Turn{Write: func() func() { wrote = true; return nil }})
		synctest.Wait()
		assert.True(t, wrote)
		close(free)
	})
}
