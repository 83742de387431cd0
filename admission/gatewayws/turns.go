package gatewayws

import (
	"runtime"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/overload"
)

// Bounds of what a gateway begins. A turn is that of an intent which is about to run: it lasts until a goroutine runs
// it, after all that could run when it was given, so turns come as fast as the processors have time for them.
const (
	turnsPerProcessor = 16
	mostWaiting       = 4096                  // intents; each has at most maxFrame bytes
	beginTarget       = 50 * time.Millisecond // in which an intent should begin
)

// inTurn calls run in a goroutine when it is the turn of the intent, or with an error if it gets none: the gateway is
// late, or the client needs no answer any more. Movements are refused before actions, and the actors have turns one
// after another.
func (s *conn) inTurn(f *intentFrame, run func(late error)) {
	now := time.Now()
	r := overload.Request{Holder: s.sess.Actor(), Class: overload.Owed}
	if f.Kind == admission.Move {
		r.Class = overload.Move
		if f.Within > 0 {
			r.Deadline = now.Add(f.patience())
		}
	}
	s.cfg.turns.Submit(now, r, func(late error) {
		s.workerPool.run(func() {
			if late == nil {
				// Those that read from clients go first. Reading costs little, and what is read waits in the room,
				// where it is seen and refused in time. Otherwise each intent would begin as soon as it was read,
				// and all would wait in the scheduler's queue of goroutines with something to read, unseen.
				runtime.Gosched()
				s.cfg.turns.Leave(time.Now())
			}
			run(late)
		})
	})
}

// patience is how long an intent may take.
func (f *intentFrame) patience() time.Duration {
	if f.Kind == admission.Move && f.Within > 0 && f.Within < intentTimeout.Milliseconds() {
		return time.Duration(f.Within) * time.Millisecond
	}
	return intentTimeout
}

// Stats is what a Handler's clients send beyond what it can begin.
type Stats struct {
	Late       uint64        // half seconds in which each intent waited for more than 50 ms until it began
	Delay      time.Duration // the least that any of them waited in the last half second
	Waiting    int           // intents that have not begun
	Overloaded uint64        // intents and connections that were asked to come back later
}

// Stats returns the handler's figures. It may be called at any time.
func (h *Handler) Stats() Stats {
	s := h.cfg.turns.Stats(time.Now())
	return Stats{Late: s.Late, Delay: s.Delay, Waiting: s.Waiting, Overloaded: s.Refused}
}
