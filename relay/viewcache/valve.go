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
// and then one, which decides. One slow call may be this process's fault, or chance.
//
//	open ──three calls fail──▶ closed ──pause──▶ one call ──works──▶ open
//	                             ▲                  │
//	                             └──────fails───────┘
type valve struct {
	pause  time.Duration
	logger *slog.Logger

	mu     sync.Mutex
	row    int // of failures
	closed bool
	until  time.Time // while closed: when the next call is let through
}

// open reports whether a call may be made.
func (v *valve) open() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.closed {
		return true
	}
	now := time.Now()
	if now.Before(v.until) {
		return false
	}
	v.until = now.Add(v.pause) // the others wait for what becomes of this one
	return true
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

func (v *valve) failed(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.row++; v.row < failuresInARow {
		return
	}
	if !v.closed {
		v.logger.Warn("the store of views does not work: relays read the coordination store themselves", "error", err)
	}
	v.closed, v.until = true, time.Now().Add(v.pause)
}

// unknown follows a call that was given up by its caller: if it was the one that decides, the next one may.
func (v *valve) unknown() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.until = time.Time{}
}
