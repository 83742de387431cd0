// Package watchdog notices calls that do not return.
package watchdog

import (
	"runtime"
	"sync"
	"time"
)

// Watchdog watches one call at a time, from Start to Stop. While the call goes on, check is called at each interval
// with the duration of the call so far. That is counted in intervals, not read from a clock: a process that was paused
// has not hung. A check that returns false gives the call up for good: Hung is closed, and Stop ends its goroutine.
type Watchdog struct {
	interval time.Duration
	check    func(took time.Duration) bool
	hung     chan struct{}

	mu      sync.Mutex // held while check runs
	timer   *time.Timer
	running bool
	took    time.Duration
	gaveUp  bool
}

// New returns a Watchdog. check must not call its methods; what it reads is set in Start and read in Inspect.
func New(interval time.Duration, check func(took time.Duration) bool) *Watchdog {
	return &Watchdog{interval: interval, check: check, hung: make(chan struct{})}
}

// Hung is closed when a call is given up. The goroutine of the call may go on for ever.
func (w *Watchdog) Hung() <-chan struct{} { return w.hung }

// Start begins to watch. set is called first, under the lock that check holds.
func (w *Watchdog) Start(set func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set()
	w.running, w.took = true, 0
	if w.timer == nil {
		w.timer = time.AfterFunc(w.interval, w.tick)
	} else {
		w.timer.Reset(w.interval)
	}
}

// Stop ends watching, after a check that is under way. reset is called last. Stop does not return if the call was given
// up: the goroutine ends, since what it works on belongs to another by then.
func (w *Watchdog) Stop(reset func()) {
	w.timer.Stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.gaveUp {
		runtime.Goexit()
	}
	w.running = false
	reset()
}

// Inspect calls f with the duration of the last call, while no check runs.
func (w *Watchdog) Inspect(f func(took time.Duration)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.took)
}

func (w *Watchdog) tick() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.running {
		return
	}
	if w.took += w.interval; !w.check(w.took) {
		w.gaveUp = true
		close(w.hung)
		return
	}
	w.timer.Reset(w.interval)
}
