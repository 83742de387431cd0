package directorystore

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/listen"
)

// Memory is a Store for one process. It keeps what it has until the process ends.
type Memory struct {
	now     func() time.Time
	inboxes listen.Set[string, func([]byte)]

	mu      sync.Mutex
	players map[string]*player
}

type player struct {
	place Place
	ended time.Time            // zero: never
	heard map[string]time.Time // by holder: when the lease was last renewed
}

var _ Store = (*Memory)(nil)

// NewMemory returns an empty directory.
func NewMemory() *Memory { return &Memory{now: time.Now, players: map[string]*player{}} }

// Step steps the clock of a record, and of all others, forward. It is for tests.
func (m *Memory) Step(by time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.now
	m.now = func() time.Time { return now().Add(by) }
}

// Forget loses all records, as a store that is lost does.
func (m *Memory) Forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.players)
}

// Look implements Store. It fails only if ctx has ended.
func (m *Memory) Look(ctx context.Context, actors ...string) ([]Record, error) {
	records := make([]Record, len(actors))
	err := m.each(ctx, "look up", len(actors), func(i int) {
		if p := m.players[actors[i]]; p != nil {
			records[i] = p.record(m.now())
		}
	})
	return records, err
}

// each calls f n times, with the lock.
func (m *Memory) each(ctx context.Context, op string, n int, f func(i int)) error {
	if ctx.Err() != nil {
		return &fence.StoreError{Op: op, Outcome: fence.ErrUnknownOutcome, Err: context.Cause(ctx)}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range n {
		f(i)
	}
	return nil
}

// player is the record of an actor, which is made if there is none.
func (m *Memory) player(actor string) *player {
	if m.players[actor] == nil {
		m.players[actor] = &player{heard: map[string]time.Time{}}
	}
	return m.players[actor]
}

func (p *player) record(now time.Time) Record {
	r := Record{Place: p.place, EverEnded: !p.ended.IsZero()}
	if r.EverEnded {
		r.Ended = max(0, now.Sub(p.ended))
	}
	for _, holder := range slices.Sorted(maps.Keys(p.heard)) {
		if lives(p.heard[holder], now) {
			r.Holders = append(r.Holders, holder)
		}
	}
	return r
}

// lives reports whether a lease runs. One of the future was renewed before the clock was stepped back: its holder, if
// it lives, renews it soon.
func lives(heard, now time.Time) bool {
	return now.Sub(heard) < TTL && heard.Sub(now) <= time.Second
}

// Renew implements Store. It fails only if ctx has ended.
func (m *Memory) Renew(ctx context.Context, holder string, actors ...string) ([]Record, error) {
	records := make([]Record, len(actors))
	err := m.each(ctx, "renew", len(actors), func(i int) {
		p, now := m.player(actors[i]), m.now()
		if p.ended.After(now) { // the clock was stepped back
			p.ended = now
		}
		maps.DeleteFunc(p.heard, func(_ string, heard time.Time) bool { return !lives(heard, now) })
		p.heard[holder] = now
		records[i] = p.record(now)
	})
	return records, err
}

// Leave implements Store. It fails only if ctx has ended.
func (m *Memory) Leave(ctx context.Context, holder string, actors ...string) error {
	return m.each(ctx, "leave", len(actors), func(i int) {
		if p := m.players[actors[i]]; p != nil {
			delete(p.heard, holder)
		}
	})
}

// Place implements Store. It fails only if ctx has ended.
func (m *Memory) Place(ctx context.Context, moves ...Move) error {
	return m.each(ctx, "place", len(moves), func(i int) {
		if p := m.player(moves[i].Actor); moves[i].Newer(p.place) {
			p.place = moves[i].Recorded(p.place)
		}
	})
}

// End implements Store. It fails only if ctx has ended.
func (m *Memory) End(ctx context.Context, actor string) (r Record, err error) {
	err = m.each(ctx, "end", 1, func(int) {
		p := m.player(actor)
		p.ended = m.now()
		r = p.record(p.ended)
	})
	return r, err
}

// Post implements Store. It fails only if ctx has ended.
func (m *Memory) Post(ctx context.Context, holder string, message []byte) (bool, error) {
	if err := m.each(ctx, "post", 0, nil); err != nil {
		return false, err
	}
	hear := m.inboxes.Of(holder)
	for _, heard := range hear {
		heard(slices.Clone(message))
	}
	return len(hear) > 0, nil
}

// Listen implements Store. It returns when ctx has ended.
func (m *Memory) Listen(ctx context.Context, holder string, ready func(), heard func([]byte)) error {
	var mu sync.Mutex
	defer m.inboxes.Add(holder, func(message []byte) {
		mu.Lock()
		defer mu.Unlock()
		heard(message)
	})()
	ready()
	<-ctx.Done()
	return nil
}
