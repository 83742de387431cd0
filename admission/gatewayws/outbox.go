package gatewayws

import (
	"encoding/json"
	"sync"
	"time"

	"github.com/tilefence/tilefence/internal/socket"
)

// mostTold is how many messages wait for a client that reads slowly.
const mostTold = 16

// fewFrames is for how many frames a client keeps room while nothing waits.
const fewFrames = 4

// outbox is what waits to be written to a client: answers, of which the connection bounds the number (enter), what the
// game tells the player, and the close frame. All of it goes out in one write.
type outbox struct {
	turn socket.Turn

	mu      sync.Mutex
	frames  [][]byte
	waiting load // frames
	taken   load // what is being written
	writing bool // what waits will be written
	last    bool // the close frame is in; what comes behind it is dropped
	closed  bool // the connection has ended: only intents under way add frames
}

// load says what frames are.
type load struct {
	answers int  // that their senders are busy with
	told    int  // messages of the game
	closing bool // the last of them closes the connection
}

// messageFrame is the frame of a message. It may be written to any number of connections.
func messageFrame(message []byte) []byte {
	if message == nil {
		message = []byte{}
	}
	b, err := json.Marshal(serverFrame{Message: message})
	if err != nil { // a struct of strings and numbers
		panic(err)
	}
	return socket.Seal(append(make([]byte, socket.MaxHeader, socket.MaxHeader+len(b)), b...), socket.OpText)
}

// tell sends a frame when those before it are sent. It does not wait. It is false for a session that ends, and for one
// that has too many messages to read.
func (s *conn) tell(frame []byte) bool {
	s.mu.Lock()
	over := s.leaving || s.ended != nil
	s.mu.Unlock()
	return !over && s.post(frame, load{told: 1})
}

// post has a frame written when those before it are. It does not wait. It is false for a connection that has ended,
// and for a message too many.
func (s *conn) post(frame []byte, of load) bool {
	o := &s.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed && of.answers == 0 || o.waiting.told+o.taken.told+of.told > mostTold {
		return false
	}
	if !o.last {
		if o.frames == nil {
			o.frames = make([][]byte, 0, fewFrames)
		}
		o.frames = append(o.frames, frame)
	}
	o.last = o.last || of.closing
	o.waiting.answers += of.answers
	o.waiting.told += of.told
	o.waiting.closing = o.waiting.closing || of.closing
	if !o.writing {
		o.writing = true
		s.work.Add(1)
		s.pool.Add(&o.turn)
	}
	return true
}

// take returns the frames that wait; ok is false if nothing does, and the caller has no more to write.
func (o *outbox) take() (frames [][]byte, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.frames) == 0 && o.waiting == (load{}) {
		o.writing = false
		return nil, false
	}
	frames, o.frames = o.frames, nil
	o.taken, o.waiting = o.waiting, load{}
	return frames, true
}

// written returns what was written.
func (o *outbox) written() load {
	o.mu.Lock()
	defer o.mu.Unlock()
	of := o.taken
	o.taken = load{}
	return of
}

// close refuses what no intent under way has to say.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}

// writeSome writes what waits, as a socket.Turn has it.
func (s *conn) writeSome() (rest func()) {
	for {
		frames, ok := s.outbox.take()
		if !ok {
			s.work.Done()
			return nil
		}
		if len(frames) > 0 {
			left, done := s.wire.TrySend(frames...)
			if !done {
				return func() { s.writeAll(left) }
			}
		}
		s.wrote()
	}
}

// writeAll writes what TrySend has left, which may be the rest of a frame alone, and what waits behind it. A client
// that does not take it in time is cut off.
func (s *conn) writeAll(left [][]byte) {
	for ok := true; ok; left, ok = s.outbox.take() {
		if s.wire.Send(writeTimeout, left...) != nil {
			s.cut() // the reader reports why
		}
		s.wrote()
	}
	s.work.Done()
}

// wrote does what follows when something is written.
func (s *conn) wrote() {
	of := s.outbox.written()
	if of.closing && s.wire.SetReadDeadline(time.Now().Add(writeTimeout)) != nil {
		s.cut()
	}
	s.done(of.answers)
}
