package relay

import (
	"runtime"
	"sync"
)

// writePool writes what the clients' queues hold, each in its turn, as far as the network takes it at once: what takes
// longer has a goroutine of its own. So a batch that wakes ten thousand clients wakes as many goroutines as there are
// processors, and no client waits for a slow one.
type writePool struct {
	most int // goroutines

	mu          sync.Mutex
	first, last *queue // those that wait
	running     int
}

func newWritePool() *writePool { return &writePool{most: runtime.GOMAXPROCS(0)} }

// add lets q.write be called soon. It is called with the queue's mutex held.
func (w *writePool) add(q *queue) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.first == nil {
		w.first = q
	} else {
		w.last.after = q
	}
	w.last = q
	if w.running < w.most {
		w.running++
		go w.work()
	}
}

func (w *writePool) work() {
	for q := w.next(); q != nil; q = w.next() {
		rest := q.write()
		if rest == nil {
			q.writers.Done()
			continue
		}
		go func() {
			defer q.writers.Done()
			rest()
		}()
	}
}

// next is the queue whose turn it is; nil: no queue waits, and the caller ends.
func (w *writePool) next() *queue {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.first
	if q == nil {
		w.running--
		return nil
	}
	w.first, q.after = q.after, nil
	return q
}
