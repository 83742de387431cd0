package relay

import (
	"cmp"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/gate"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// client is one connection: a goroutine that reads what the client asks for (requests.go). What hubs queue is written
// by the relay's writers, and by a goroutine of its own while that takes its time. The reader owns the subscriptions;
// the queue is in queue.go.
type client struct {
	cfg    *Config
	count  *counters
	hubs   *registry
	wire   *socket.Conn
	form   form
	sess   *gate.Session
	share  *share
	opened time.Time
	// what it is sent when nothing else is; the same bytes for all clients of its form
	heartbeat []byte

	// Used by the reading goroutine only.
	subs    map[fence.TileID]*subscription
	inbound socket.Budget // of messages

	queue
}

// writeSome writes what is queued, all of it in one go, if the network takes it at once and no Sync is due.
func (c *client) writeSome() (rest func()) {
	var spare [][]byte
	for {
		frames, what := c.atOnce(spare)
		switch what {
		case nextFrames:
			left, done := c.wire.TrySend(frames...)
			if !done {
				return func() {
					if c.wrote(c.wire.Send(c.cfg.writeTimeout, left...)) {
						c.writeLoop()
					}
				}
			}
			c.written()
			clear(frames)
			spare = frames
		case nextWait:
			c.greetSoon()
			return nil
		default:
			return c.writeLoop
		}
	}
}

// wrote counts what was written. It reports whether there can be more.
func (c *client) wrote(err error) bool {
	c.written()
	if err != nil {
		c.gone("write failed: " + err.Error())
		_ = c.wire.Close()
	}
	return err == nil
}

// writeLoop writes what is queued, all of it in one go, and takes a due Sync when the queue is empty.
func (c *client) writeLoop() {
	var spare [][]byte
	var sync []byte // that is queued; there is at most one
	defer func() { c.release(sync) }()
	for {
		frames, owed, what := c.next(spare)
		switch what {
		case nextFrames:
			err := c.wire.Send(c.cfg.writeTimeout, frames...)
			c.release(sync)
			sync = nil
			if !c.wrote(err) {
				return
			}
			clear(frames)
			spare = frames
		case nextSync:
			wait, ok := c.syncWait(), false
			if wait == 0 {
				sync, ok = c.backlog.sync(c, owed)
			}
			if !ok {
				c.greetSoon()
				c.owe(owed) // frames of other tiles go first
				time.Sleep(min(cmp.Or(wait, syncPause), syncPause))
			}
		case nextWait:
			c.greetSoon()
			return
		case nextClose:
			c.farewell()
			return
		}
	}
}

// syncPause is how long a writer that waits for a budget leaves frames of other tiles waiting.
const syncPause = 50 * time.Millisecond

// greetPause is how long the response to a handshake waits for the first Sync of a tile that the relay has to read.
const greetPause = 250 * time.Millisecond

// greetSoon sees to it that the client has the response to its handshake, if its Sync takes long. An error shows at the
// next write, too.
func (c *client) greetSoon() {
	if c.wire.Held() {
		time.AfterFunc(greetPause, func() { _ = c.wire.Greet(c.cfg.writeTimeout) })
	}
}

// release counts a Sync out that was queued.
func (c *client) release(sync []byte) {
	if sync != nil {
		c.backlog.release(c, sync)
	}
}

// farewell sends the close frame. The reader waits for the peer's, for a bounded time.
func (c *client) farewell() {
	code, reason := c.cause()
	err := c.wire.Send(c.cfg.closeTimeout, socket.CloseFrame(code, reason))
	if err == nil {
		err = c.wire.SetReadDeadline(time.Now().Add(c.cfg.closeTimeout))
	}
	if err != nil {
		_ = c.wire.Close()
	}
}

// sweep sends what keeps the connection alive, and ends one that is silent or has been behind too long.
func (c *client) sweep(now time.Time) {
	cfg := c.cfg
	switch {
	case c.overdue(now, 2*cfg.closeTimeout, cfg.slowTimeout):
		_ = c.wire.Close() // its writer is in the middle of something
	case c.sess.Expired(now):
		c.expire()
	case now.Sub(c.wire.Heard()) > cfg.PingInterval*5/2:
		if c.shut(relaypb.CloseIdle, "no answer to pings", false) {
			c.count.idleCloses.Add(1)
		}
	case c.slowFor(now) > cfg.slowTimeout:
		if c.shut(relaypb.CloseTooSlow, "reading too slowly for too long", false) {
			c.count.slowCloses.Add(1)
		}
	default:
		c.keepAlive(now, cfg.PingInterval, c.heartbeat)
	}
}

const endedReason = "the session was ended"

// end ends the session for the game. It reports whether it was open.
func (c *client) end() bool { return c.shut(relaypb.CloseEnded, endedReason, false) }

// makePlace ends a connection of an actor, or an address, that holds more of a full relay than another one.
func (c *client) makePlace() {
	c.shut(relaypb.CloseTryLater, "the relay is full, and this actor or address has more connections than others",
		false)
}

// expire ends a connection whose session is over.
func (c *client) expire() { c.shut(relaypb.CloseExpired, "the session has expired", false) }

// reply queues an answer to something the client sent. A client that does not read its answers while it
// asks for more is cut off.
func (c *client) reply(frame []byte) {
	if !c.push(frame) {
		c.shut(relaypb.ClosePolicy, "too many requests unread", false)
	}
}

// session tells the client how long its session lasts, if it ends.
func (c *client) session() {
	if left := c.sess.Remaining(time.Now()); left > 0 {
		c.force(prepare(c.form, sessionMessage(left)))
	}
}

// refresh takes a new token of the client's.
func (c *client) refresh(token string) {
	if err := c.sess.Refresh(token); err != nil {
		c.cfg.refusals.Info("session not refreshed", "remote", c.sess.Remote(), "actor", c.sess.Actor(), "error", err)
		c.refuse("", relaypb.Code_CODE_UNAUTHENTICATED, "the token was not accepted")
		return
	}
	c.reply(prepare(c.form, sessionMessage(c.sess.Remaining(time.Now()))))
}

func (c *client) refuse(tile string, code relaypb.Code, text string) {
	c.reply(prepare(c.form, errorMessage(tile, code, text)))
}
