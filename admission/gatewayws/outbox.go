package gatewayws

import (
	"encoding/json"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/internal/socket"
)

// mostTold is how many messages wait for a client that reads slowly.
const mostTold = 16

// outbox is what the game tells a player and is not written yet.
type outbox struct {
	mu     sync.Mutex
	frames [][]byte // the first one is being written
	closed bool
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
	o := &s.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	if over || o.closed || len(o.frames) == mostTold {
		return false
	}
	if o.frames = append(o.frames, frame); len(o.frames) == 1 {
		s.work.Add(1)
		s.workerPool.run(s.sendTold)
	}
	return true
}

// sendTold writes what waits.
func (s *conn) sendTold() {
	defer s.work.Done()
	o := &s.outbox
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.frames) > 0 {
		frame := o.frames[0]
		o.mu.Unlock()
		s.send(frame)
		o.mu.Lock()
		o.frames = slices.Delete(o.frames, 0, 1)
	}
}

// close refuses what is told from now on.
func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}
