package gatewayws

import "sync"

// maxIdle is how many goroutines wait for an intent at most: more than run at once, since a movement has one only until
// it is sent. Those that more players need at once end when they are done.
const maxIdle = 128

// workerPool runs intents, each in a goroutine: an action waits in it for the tile's next tick. One that is done waits
// for the next intent of any client: its stack has grown to what an intent takes, and to grow a new one each time cost
// a sixth of an intent. The zero workerPool is ready; it keeps no goroutine until hire, and after release.
type workerPool struct {
	mu    sync.Mutex
	hired bool
	idle  []chan func() // the last one to be done is the first to have an intent: its stack is in the caches
}

// hire lets goroutines wait from now on.
func (c *workerPool) hire() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hired = true
}

// release ends the goroutines that wait, and those that run something when they are done.
func (c *workerPool) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hired = false
	for _, next := range c.idle {
		close(next)
	}
	c.idle = nil
}

// run calls f in a goroutine.
func (c *workerPool) run(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := len(c.idle) - 1
	if last < 0 {
		go c.work(f)
		return
	}
	c.idle[last] <- f // it has room for one
	c.idle[last] = nil
	c.idle = c.idle[:last]
}

func (c *workerPool) work(f func()) {
	next := make(chan func(), 1)
	for f != nil {
		f()
		f = nil
		if c.waits(next) {
			f = <-next // nil once it is closed
		}
	}
}

// waits reports whether the caller is to wait for what next brings.
func (c *workerPool) waits(next chan func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.hired || len(c.idle) >= maxIdle {
		return false
	}
	c.idle = append(c.idle, next)
	return true
}
