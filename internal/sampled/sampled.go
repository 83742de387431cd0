// Package sampled bounds how many log lines strangers can cause. A line about each refusal is worth much while they
// are few; a client that is refused ten thousand times a second must not fill the disk.
//
//	refusals := sampled.Logger(slog.Default())
//	refusals.Warn("a client was refused", "remote", "192.0.2.7:51324")
//
// Of each message, the constant text without its attributes, ten lines pass in ten seconds. The first line after those
// that did not pass says in left_out how many there were. Other lines of the same logger are not affected: only what
// goes through the returned one is counted. Safe for concurrent use.
package sampled

import (
	"context"
	"log"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// Of each message, at most burst lines pass in an interval.
const (
	burst    = 10
	interval = 10 * time.Second
)

// Logger returns a logger that writes to l what the sampling lets through. A nil l discards everything.
func Logger(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(&handler{l.Handler(), &counts{burst: burst, interval: interval, messages: map[string]*count{}}})
}

// Reminder returns a logger for what may go on for long: of each message, a line in half a minute passes.
func Reminder(l *slog.Logger) *slog.Logger {
	return slog.New(&handler{l.Handler(), &counts{burst: 1, interval: 30 * time.Second, messages: map[string]*count{}}})
}

// HTTP returns an http.Server.ErrorLog that writes to l, sampled: strangers cause a line for each TLS handshake that
// fails, with an address of its own. Panics of handlers are errors, with their stacks.
func HTTP(l *slog.Logger) *log.Logger { return log.New(lines{Logger(l)}, "", 0) }

// lines takes the lines of package http, and gives them a constant message.
type lines struct{ log *slog.Logger }

// Write implements io.Writer.
func (w lines) Write(line []byte) (int, error) {
	text := strings.TrimPrefix(strings.TrimSpace(string(line)), "http: ")
	if strings.HasPrefix(text, "panic serving") {
		w.log.Error("panic while a request was served", "error", text)
	} else {
		w.log.Warn("an HTTP connection failed", "error", text)
	}
	return len(line), nil
}

// handler passes some records on. Handlers made from it share its counts.
type handler struct {
	slog.Handler
	counts *counts
}

type counts struct {
	burst    int
	interval time.Duration

	mu       sync.Mutex
	messages map[string]*count // the texts of a program are few
}

// count is of one message.
type count struct {
	since   time.Time // the interval began
	passed  int       // in the interval
	leftOut uint64    // since a line passed
}

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	leftOut, pass := h.counts.pass(r.Message, time.Now())
	if !pass {
		return nil
	}
	if leftOut > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Uint64("left_out", leftOut))
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &handler{h.Handler.WithAttrs(attrs), h.counts}
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	return &handler{h.Handler.WithGroup(name), h.counts}
}

func (c *counts) pass(message string, now time.Time) (leftOut uint64, pass bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.messages[message]
	if n == nil {
		n = &count{since: now}
		c.messages[message] = n
	}
	if now.Sub(n.since) >= c.interval {
		n.since, n.passed = now, 0
	}
	if n.passed >= c.burst {
		n.leftOut++
		return 0, false
	}
	n.passed++
	leftOut, n.leftOut = n.leftOut, 0
	return leftOut, true
}
