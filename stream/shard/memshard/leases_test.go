package memshard_test

import (
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/stream/shard/memshard"
	"github.com/tilefence/tilefence/stream/shard/shardtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is the wall clock, put forward at will.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *clock) advance(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += by
}

func TestConformance(t *testing.T) {
	shardtest.Run(t, func(*testing.T) shardtest.Backend {
		c := &clock{}
		l := memshard.NewWithClock(c.now)
		return shardtest.Backend{Leases: l,
			Age:  func(_ string, by time.Duration) { c.advance(by) },
			Lose: func(string) { l.Forget() },
		}
	})
}
