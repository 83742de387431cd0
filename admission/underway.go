package admission

import (
	"context"
	"sync"

	"github.com/tilefence/tilefence/fence"
)

// underWay are the actions that a gateway presents just now. A client that has waited for too long presents its action
// again. That costs the ledger nothing while the first call is under way: both get its answer. Otherwise a ledger that
// is late would get as much again from each client, and be later. The zero underWay is ready.
type underWay struct {
	mu sync.Mutex
	of map[presented]*presentation
}

// presented is what is the same in each call for an action.
type presented struct {
	id      string
	request Fingerprint
}

// presentation is a call under way, whose answer may be read when done is closed.
type presentation struct {
	done chan struct{}
	left bool // its caller left before the answer: one that waits presents the action itself
	art  Artifact
	err  error
}

// once calls present, or waits for the answer of such a call that is under way; shared says that it did.
func (u *underWay) once(ctx context.Context, a presented, present func() (Artifact, error)) (
	art Artifact, shared bool, err error,
) {
	for {
		p, first := u.begin(a)
		if first {
			defer u.end(a, p)
			art, err = present()
			p.art, p.err, p.left = art, err, err != nil && ctx.Err() != nil
			return art, false, err
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return Artifact{}, true, &fence.StoreError{Op: "await " + a.id, Outcome: fence.ErrUnknownOutcome,
				Err: context.Cause(ctx)}
		}
		if !p.left {
			art = p.art
			art.Duplicate = true
			return art, true, p.err
		}
	}
}

func (u *underWay) begin(a presented) (p *presentation, first bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if p := u.of[a]; p != nil {
		return p, false
	}
	if u.of == nil {
		u.of = map[presented]*presentation{}
	}
	p = &presentation{done: make(chan struct{}), left: true}
	u.of[a] = p
	return p, true
}

func (u *underWay) end(a presented, p *presentation) {
	u.mu.Lock()
	delete(u.of, a)
	u.mu.Unlock()
	close(p.done)
}
