package socket

import (
	"runtime"
	"sync"
	"time"
)

// WritePool writes what waits for many connections, each in its turn, as far as the network takes it at once: what
// takes longer has a goroutine of its own. So an event that concerns ten thousand clients wakes as many goroutines as
// there are processors, and no client waits for a slow one. Create one with NewWritePool.
type WritePool struct {
	// Waited, if set before the first Add, is told how long each turn has waited when it comes.
	Waited func(now time.Time, waited time.Duration)

	most int // goroutines

	mu          sync.Mutex
	first, last *Turn // those that wait
	running     int
}

// Turn is one connection's place in a WritePool. It waits in one pool, once.
type Turn struct {
	// Write writes what waits for the connection as far as the network takes it at once. rest does what is left, which
	// may take its time; nil: nothing is.
	Write func() (rest func())

	after *Turn     // guarded by the pool
	since time.Time // when it was added, likewise
}

// NewWritePool returns a pool. It has no goroutine while no connection waits.
func NewWritePool() *WritePool { return &WritePool{most: runtime.GOMAXPROCS(0)} }

// Add lets t.Write be called soon, once. It does not call it itself, so the caller may hold locks. A turn is added
// again only after its Write was called.
func (w *WritePool) Add(t *Turn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.first = t
	} else {
		w.last.after = t
	}
	w.last, t.since = t, time.Now()
	if w.running < w.most {
		w.running++
		go w.work()
	}
}

func (w *WritePool) work() {
	for t := w.next(); t != nil; t = w.next() {
		if w.Waited != nil {
			now := time.Now()
			w.Waited(now, now.Sub(t.since))
		}
		if rest := t.Write(); rest != nil {
			go rest()
		}
	}
}

// next is the turn that has come; nil: none waits, and the caller ends.
func (w *WritePool) next() *Turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.first
	if t == nil {
		w.running--
		return nil
	}
	w.first, t.after = t.after, nil
	return t
}
