package decision

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/tilefence/tilefence/internal/wait"
)

// Magic begins a file.
const Magic = "tilefence decisions 1\n"

// Bounds of a log's buffer.
const (
	flushEvery = 200 * time.Millisecond
	flushAt    = 256 << 10 // bytes
	mostBytes  = 4 << 20   // that wait for the disk
)

// Log is a process's file of decisions.
type Log struct {
	file  io.WriteCloser
	began time.Time

	mu      sync.Mutex
	buffer  []byte
	servers int
	missing uint64 // events dropped since the last that was kept
	dropped uint64 // in all
	closed  bool
	err     error // the first of the file

	full chan struct{} // the buffer is worth writing
	end  chan struct{} // closed by Close
	done chan struct{} // closed when the writer has ended
}

// Create makes the file, or empties it, and begins to write. Close it.
func Create(path string) (*Log, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return newLog(f), nil
}

func newLog(f io.WriteCloser) *Log {
	l := &Log{file: f, began: time.Now(), buffer: []byte(Magic), full: make(chan struct{}, 1),
		end: make(chan struct{}), done: make(chan struct{})}
	go l.write()
	return l
}

// Close writes what is left and closes the file. The error is the file's first, or says how many events were dropped.
// What is decided afterwards is not kept.
func (l *Log) Close() error {
	if l == nil {
		return nil
	}
	l.put(&Event{Kind: Closed, Called: l.now()})
	l.mu.Lock()
	first := !l.closed
	l.closed = true
	l.mu.Unlock()
	if first {
		close(l.end)
	}
	<-l.done
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.dropped > 0 {
		return errors.Join(l.err, fmt.Errorf("%d decisions were dropped: the disk did not follow", l.dropped))
	}
	return l.err
}

// Dropped is how many events were dropped so far.
func (l *Log) Dropped() uint64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// now is the time, in nanoseconds since 1970, as the clock had it when the log was created.
func (l *Log) now() int64 { return l.began.UnixNano() + int64(time.Since(l.began)) }

// put keeps an event, or drops it.
func (l *Log) put(e *Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.keep(e)
}

// keep keeps an event, or drops it: never one that others need to be understood. The caller holds the lock.
func (l *Log) keep(e *Event) {
	switch {
	case l.closed:
		return
	case e.Kind != Began && e.Kind != Closed && (l.err != nil || len(l.buffer) > mostBytes):
		l.missing++
		l.dropped++
		return
	case l.missing > 0:
		l.buffer = (&Event{Kind: Dropped, Called: e.Called, Count: l.missing}).AppendFrame(l.buffer)
		l.missing = 0
	}
	l.buffer = e.AppendFrame(l.buffer)
	if len(l.buffer) > flushAt {
		wait.Wake(l.full)
	}
}

// write writes the buffer when it is worth it, and every now and then.
func (l *Log) write() {
	defer close(l.done)
	ticker := time.NewTicker(flushEvery)
	defer ticker.Stop()
	var spare []byte
	for ended := false; !ended; {
		select {
		case <-ticker.C:
		case <-l.full:
		case <-l.end:
			ended = true
		}
		l.mu.Lock()
		out := l.buffer
		l.buffer = spare[:0]
		l.mu.Unlock()
		var err error
		if len(out) > 0 {
			_, err = l.file.Write(out)
		}
		if ended {
			err = errors.Join(err, l.file.Close())
		}
		spare = out
		if err != nil {
			l.mu.Lock()
			l.err = errors.Join(l.err, err)
			l.mu.Unlock()
		}
	}
}
