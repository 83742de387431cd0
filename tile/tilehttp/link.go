package tilehttp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// subprotocol is the WebSocket subprotocol in which intents and answers travel, version 1.
const subprotocol = "tilefence.forward.v1.json"

const (
	// maxMessage is the most bytes of a message in either direction.
	maxMessage = 256 << 10

	// gather is for how long after a message a connection collects what goes into the next one. What comes after a
	// pause is sent at once. This is little beside a tick, and at 4,000 intents a second it makes one write of twenty.
	gather = 5 * time.Millisecond
)

// Bounds of a connection, the same at both ends.
const (
	maxInFlight  = 16384 // 20,000 intents a second that wait 400 ms on average, and twice that at a tick
	writeTimeout = 5 * time.Second
	pingInterval = 3 * time.Second
	dialTimeout  = 2 * time.Second // with the handshake
)

// link is one end of a connection: a writer that gathers, a heartbeat, and the reading of whole messages. What is
// written and what is done with what was read is the business of its user.
type link struct {
	conn         *websocket.Conn
	wake         chan struct{} // capacity 1: there is something to write
	writeTimeout time.Duration
	pingInterval time.Duration
	read         bytes.Buffer
}

func newLink(conn *websocket.Conn, writeTimeout, pingInterval time.Duration) *link {
	conn.SetReadLimit(maxMessage)
	return &link{conn: conn, wake: make(chan struct{}, 1), writeTimeout: writeTimeout, pingInterval: pingInterval}
}

// serve reads, pings and does what else there is to do until one of them fails or ctx ends, and returns why. stop ends
// ctx.
func (l *link) serve(
	ctx context.Context, stop context.CancelCauseFunc, read func() error, others ...func() error,
) error {
	var work sync.WaitGroup
	for _, job := range append(others, func() error { return l.heartbeat(ctx) }) {
		work.Go(func() {
			if err := job(); err != nil {
				stop(err)
			}
		})
	}
	err := read()
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	stop(err)
	_ = l.conn.CloseNow() // what it says is in err already
	work.Wait()
	return err
}

// signal wakes the writer.
func (l *link) signal() { wait.Wake(l.wake) }

// write sends messages until ctx ends or the peer does not take one in time. next appends the next message to a
// buffer, nothing if there is none, and reports whether another one is full already.
func (l *link) write(ctx context.Context, next func([]byte) ([]byte, bool)) error {
	var message []byte
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select { // the pause after the message before
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		}
		for more := true; more; {
			if message, more = next(message[:0]); len(message) == 0 {
				break
			}
			if err := l.send(ctx, message); err != nil {
				return err
			}
		}
		timer.Reset(gather)
	}
}

func (l *link) send(ctx context.Context, message []byte) error {
	limited, cancel := context.WithTimeout(ctx, l.writeTimeout)
	defer cancel()
	if err := l.conn.Write(limited, websocket.MessageText, message); err != nil {
		return fmt.Errorf("the peer did not take a message of %d bytes: %w", len(message), err)
	}
	return nil
}

// receive returns the next message, which is valid until the next call.
func (l *link) receive(ctx context.Context) ([]byte, error) {
	kind, r, err := l.conn.Reader(ctx)
	if err != nil {
		return nil, err
	}
	l.read.Reset()
	if _, err := l.read.ReadFrom(r); err != nil {
		return nil, err
	}
	if kind != websocket.MessageText {
		return nil, &fence.ArgumentError{Field: "message", Value: "binary", Want: "a text message"}
	}
	return l.read.Bytes(), nil
}

var errSilent = errors.New("the peer gave no sign of life")

// heartbeat asks the peer for a sign of life at intervals, until ctx ends or it gives none within one.
func (l *link) heartbeat(ctx context.Context) error {
	for wait.For(ctx, l.pingInterval) {
		limited, cancel := context.WithTimeout(ctx, l.pingInterval)
		err := l.conn.Ping(limited)
		cancel()
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("%w for %v: %w", errSilent, l.pingInterval, err)
		}
	}
	return nil
}
