package natsfanout

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tilefence/tilefence/fence"
)

// link is what is known of the connection.
type link struct {
	mu      sync.Mutex
	up      bool
	ended   bool          // by Close
	lost    uint64        // how often it was lost
	changed chan struct{} // closed, and replaced, when any of these change
}

// set notes that the connection is up or was lost, and is false after Close.
func (l *link) set(up bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	if l.up && !up {
		l.lost++
	}
	l.up = up
	l.notify()
	return true
}

func (l *link) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.ended = false, true
	l.notify()
}

func (l *link) notify() {
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *link) state() (up bool, lost uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.lost
}

// watch returns the state and a channel that is closed when it changes.
func (l *link) watch() (up, ended bool, lost uint64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up, l.ended, l.lost, l.changed
}

// errNotConnected is the cause of calls that fail because there is no connection.
var errNotConnected = errors.New("not connected to a NATS server; trying again")

// options are those of the connection; closed is closed when no handler will be called again.
func (f *Fanout) options(closed chan struct{}) []nats.Option {
	return append([]nats.Option{
		nats.Timeout(f.cfg.tuning.Timeout),
		nats.FlusherTimeout(f.cfg.tuning.Timeout),
		nats.PingInterval(f.cfg.tuning.PingInterval),
		nats.MaxPingsOutstanding(silentPings),
		nats.RetryOnFailedConnect(true),
		nats.MaxReconnects(-1),
		nats.ReconnectBufSize(-1), // what is published without a connection fails
		nats.ReconnectWait(retryWait),
		nats.ReconnectJitter(retryJitter, retryJitter),
		nats.ConnectHandler(f.connected),
		nats.ReconnectHandler(f.connected),
		nats.DisconnectErrHandler(f.disconnected),
		nats.ReconnectErrHandler(f.unreachable),
		nats.ErrorHandler(f.troubled),
		nats.ClosedHandler(func(*nats.Conn) { close(closed) }),
	}, f.cfg.Options...)
}

func (f *Fanout) connected(conn *nats.Conn) {
	if !f.link.set(true) {
		return
	}
	server := conn.ConnectedUrlRedacted()
	f.cfg.Logger.Info("connected to NATS", "server", server)
	if err := checkLimit(conn); err != nil {
		f.cfg.Logger.Error("frames cannot be published", "error", err)
	}
}

func (f *Fanout) disconnected(_ *nats.Conn, err error) {
	if !f.link.set(false) {
		return
	}
	f.cfg.Logger.Warn("connection to NATS lost; trying again", "error", err)
}

// unreachable notes that a server could not be reached, which is worth a line now and then.
func (f *Fanout) unreachable(_ *nats.Conn, err error) {
	f.attempts.Do(func() { f.cfg.Logger.Warn("NATS cannot be reached; trying again", "error", err) })
}

// troubled takes the library's asynchronous errors. Its own drops are counted by Stats.
func (f *Fanout) troubled(_ *nats.Conn, sub *nats.Subscription, err error) {
	if errors.Is(err, nats.ErrSlowConsumer) {
		f.cfg.Logger.Warn("messages were lost before they reached their subscription", "subject", sub.Subject)
		return
	}
	if f.mayNotAnswer(err) {
		f.cfg.Logger.Info("this user leaves it to others to answer for the world on NATS", "error", err)
		return
	}
	f.refused.Add(1)
	f.cfg.Logger.Error("refused by NATS", "error", err)
}

// checkLimit returns a *LimitError if the connected server takes smaller messages than a frame may be.
func checkLimit(conn *nats.Conn) error {
	if limit := conn.MaxPayload(); limit > 0 && limit < fence.MaxFrame {
		return &LimitError{Server: conn.ConnectedUrlRedacted(), MaxPayload: limit}
	}
	return nil
}

// Check implements fence.Checker: the limit of the server that the connection leads to, see LimitError, and a
// *fence.SettingError if the last EnterWorld was forbidden to ask.
func (f *Fanout) Check(context.Context) (wrong []error) {
	if !f.conn.IsConnected() { // the link hears of a new connection a moment later
		return nil
	}
	if err := checkLimit(f.conn); err != nil {
		wrong = append(wrong, err)
	}
	if denied := f.world.denied.Load(); denied != nil {
		wrong = append(wrong, denied)
	}
	return wrong
}

// settle waits until the server has handled everything written so far, on a connection that was not lost meanwhile.
func (f *Fanout) settle(ctx context.Context) error {
	var last error
	for {
		up, ended, lost, changed := f.link.watch()
		switch {
		case ended:
			return nats.ErrConnectionClosed
		case up:
			if last = f.flush(ctx); last == nil {
				if still, now := f.link.state(); still && now == lost {
					return nil
				}
				continue
			}
		default:
			last = errNotConnected
		}
		select {
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), last)
		case <-changed:
		case <-time.After(retryWait):
		}
	}
}

// flush is a round trip to the server.
func (f *Fanout) flush(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, f.cfg.tuning.Timeout)
	defer cancel()
	return f.conn.FlushWithContext(ctx)
}
