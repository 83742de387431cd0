package relay

import (
	"math"
	"time"

	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// keeping is what each end has been shown of the other's life.
type keeping struct {
	pinged time.Time // when the client was last asked for a sign of life
	quiet  time.Time // since when it has had no message, as far as keepAlive has seen; zero: it has had no heartbeat
	spoke  bool      // a message was queued since keepAlive was called
	busy   bool      // frames are being written
}

var ping = socket.Frame(socket.OpPing, nil)

// keepAlive queues a ping every interval, for the relay to hear of the client, and a heartbeat when the client has had
// no message for half of that, for the client to hear of the relay. The first heartbeat is due at once. A client that
// has not read what it was sent before has no heartbeat beside that.
func (q *queue) keepAlive(now time.Time, interval time.Duration, heartbeat []byte) {
	q.mu.Lock()
	defer q.mu.Unlock()
	first := q.quiet.IsZero()
	if q.spoke && !first {
		q.spoke, q.quiet = false, now
	}
	if q.closing || q.over || len(q.frames) >= q.maxFrames {
		return
	}
	if first || now.Sub(q.quiet) >= interval/2 && len(q.frames) == 0 && !q.busy {
		q.spoke, q.quiet = false, now
		q.add(heartbeat)
	}
	if now.Sub(q.pinged) >= interval {
		q.pinged = now
		q.add(ping)
	}
}

// heartbeats are what clients are sent that have had nothing for the interval, by form.
func heartbeats(interval time.Duration) (all [forms][]byte) {
	ms := uint32(min(max(interval.Milliseconds(), 1), math.MaxUint32))
	m := &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Heartbeat{Heartbeat: &relaypb.Heartbeat{IntervalMs: ms}}}
	for _, e := range []relaypb.Encoding{relaypb.Binary, relaypb.JSON} {
		plain := prepare(form(e), m)
		all[form(e)], all[form(e)|deflated] = plain, plain // it is too short to be compressed
	}
	return all
}
