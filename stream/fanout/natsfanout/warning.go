package natsfanout

import (
	"sync"
	"time"
)

// warnEvery spaces the log lines about one kind of trouble.
const warnEvery = 10 * time.Second

// warning counts what is logged now and then.
type warning struct {
	mu    sync.Mutex
	count int
	next  time.Time
}

// add counts one more, and says when a line is due and how many it stands for.
func (w *warning) add() (n int, due bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count++
	now := time.Now()
	if now.Before(w.next) {
		return 0, false
	}
	n, w.count, w.next = w.count, 0, now.Add(warnEvery)
	return n, true
}
