package gatewayws

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
)

// TestWorkerPoolRunsEverything: all that is run ends, by no more goroutines than were needed at once or may wait;
// TestMain sees that none is left.
func TestWorkerPoolRunsEverything(t *testing.T) {
	var c workerPool
	var ran atomic.Int64
	var runs sync.WaitGroup
	one := func() {
		ran.Add(1)
		runs.Done()
	}
	rounds := func(n int) {
		for range n {
			runs.Add(8)
			for range 8 {
				c.run(one)
			}
			runs.Wait()
		}
	}
	waiting := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.idle)
	}
	rounds(1)
	assert.Zero(t, waiting(), "no goroutine waits before there are clients")
	c.hire()
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			var mine sync.WaitGroup
			for range 500 {
				mine.Add(1)
				c.run(func() {
					ran.Add(1)
					mine.Done()
				})
				mine.Wait()
			}
		})
	}
	callers.Wait()
	rounds(100)
	assert.LessOrEqual(t, waiting(), maxIdle)
	c.release()
	assert.Zero(t, waiting())
	rounds(1)
	assert.Zero(t, waiting(), "no goroutine waits after the last client has left")
	assert.EqualValues(t, 8+4*500+800+8, ran.Load())
}
