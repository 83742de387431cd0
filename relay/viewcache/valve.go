package viewcache

import (
	"errors"
	"log/slog"
	"sync"
	"time"
)

// failuresInARow close the valve.
const failuresInARow = 3

// errClosed: the store of views failed a moment ago and is left alone.
var errClosed = errors.New("the store of views failed a moment ago")

// valve keeps reads away from a store that does not answer: after three failures in a row no call is made for a pause,
// and then one, which decides. One slow call may be this process's fault, or chance. Calls share connections: what was
// under way when another one broke off counts as one failure with it, but each that was waited for in vain counts.
//
//	open ──three calls fail──▶ closed ──pause──▶ one call ──works──▶ open
//	                             ▲                  │
//	                             └──────fails───────┘
type valve struct {
	pause  time.Duration
	logger *slog.Logger

	mu     sync.Mutex
	row    int       // of failures
	last   time.Time // failure
	closed bool
	until  time.Time // while closed: when the next call is let through
}

// attempt is a call that the valve lets through.
type attempt struct {
	began   time.Time
	decides bool // the valve is closed
}

// open reports whether a call may be made.
func (v *valve) open() (a attempt, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	a.began = time.Now()
	if !v.closed {
		return a, true
	}
	if a.began.Before(v.until) {
		return a, false
	}
	v.until = a.began.Add(v.pause) // the others wait for what becomes of this one
	a.decides = true
	return a, true
}

func (v *valve) works() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.row = 0
	if v.closed {
		v.closed = false
		v.logger.Info("the store of views works again")
	}
}

// failed notes an error; late: it is that the call took too long.
func (v *valve) failed(a attempt, late bool, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !late && !a.decides && a.began.Before(v.last) {
		return
	}
	v.last = time.Now()
	if v.row++; v.row < failuresInARow {
		return
	}
	if !v.closed {
		v.logger.Warn("the store of views does not work: relays read the coordination store themselves", "error", err)
	}
	v.closed, v.until = true, time.Now().Add(v.pause)
}

// unknown follows a call that was given up by its caller: if it was the one that decides, the next one may.
func (v *valve) unknown(a attempt) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if a.decides {
		v.until = time.Time{}
	}
}
