package admission

import (
	"cmp"
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/lru"
)

// Rate is a token bucket.
type Rate struct {
	PerSecond float64 // tokens added a second, one intent each
	Burst     int     // tokens it holds at most
}

func (r Rate) orDefault(d Rate) Rate {
	return Rate{PerSecond: cmp.Or(r.PerSecond, d.PerSecond), Burst: cmp.Or(r.Burst, d.Burst)}
}

func (r Rate) bucket() *rate.Limiter { return rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst) }

// Scope is what a rate is of.
type Scope string

// The scopes.
const (
	ScopeActor    Scope = "actor"    // the intents of an actor, of one kind: MoveRate, ActRate
	ScopeTile     Scope = "tile"     // the movements to a tile: TileRate
	ScopeTakeover Scope = "takeover" // the tiles whose owner is not known: TakeoverRate
	ScopeLedger   Scope = "ledger"   // the actions that the ledger can admit in time
)

// shaper delays what comes above a rate until its turn, and refuses what would have to wait longer than a bound. It
// keeps a token bucket for each of the keys seen last. One that is forgotten comes back with a full bucket, so the
// bound is on memory, and on rates only while fewer keys are active. A nil shaper lets everything pass.
type shaper[K comparable] struct {
	rate    Rate
	longest time.Duration // wait

	mu      sync.Mutex
	buckets *lru.Map[K, *rate.Limiter]
}

func newShaper[K comparable](r Rate, longest time.Duration, keys int) *shaper[K] {
	return &shaper[K]{rate: r, longest: longest, buckets: lru.New[K, *rate.Limiter](keys)}
}

// take spends a token of the key, which is there after wait. Otherwise it says when there would be one.
func (s *shaper[K]) take(key K) (wait time.Duration, ok bool) { return s.takeFor(key, 1) }

// takeFor is take for an actor that has left a part of what is its own, from 0 to 1. The less that is, the shorter it
// may wait: where many are above their rates, the wait grows to half of the longest, and actors that send little still
// have their turns in the other half.
func (s *shaper[K]) takeFor(key K, left float64) (wait time.Duration, ok bool) {
	if s == nil {
		return 0, true
	}
	return reserve(s.bucket(key), time.Duration(float64(s.longest)*(1+left)/2))
}

// left is which part the key has left of half of its bucket, from 0 to 1.
func (s *shaper[K]) left(key K) float64 {
	if s == nil || s.rate.Burst == 0 {
		return 1
	}
	return min(1, max(0, 2*s.bucket(key).Tokens()/float64(s.rate.Burst)))
}

func (s *shaper[K]) bucket(key K) *rate.Limiter {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, known := s.buckets.Get(key)
	if !known {
		b = s.rate.bucket()
		s.buckets.Put(key, b)
	}
	return b
}

// reserve spends a token that is there within longest.
func reserve(b *rate.Limiter, longest time.Duration) (wait time.Duration, ok bool) {
	r := b.Reserve()
	if wait = r.Delay(); wait > longest {
		r.Cancel()
		return wait, false
	}
	return wait, true
}

// turns shapes a burst of take-overs. A tile whose owner could not be found or reached is suspect. To look for its
// owner again, and to begin it if it has none, takes a turn; the intents of a tile share one. So the tiles of a
// process that died come to the coordination store and the authority at a rate, not all at once.
//
// An actor that makes many tiles take turns, such as one that names tiles without an owner, has only the turns that are
// free at once: while turns have to be waited for, actors that make few go first.
type turns struct {
	longest time.Duration // wait
	bucket  *rate.Limiter

	mu     sync.Mutex
	tiles  *lru.Map[fence.TileID, turn]
	actors *lru.Map[string, *rate.Limiter] // a token for each turn that an actor has without waiting
}

// fewTurns is how many turns an actor may cause before actors that cause fewer go first: a player that walks causes one
// in some seconds, also where no tile is owned.
var fewTurns = Rate{PerSecond: 1, Burst: 16}

type turn struct {
	at      time.Time // of the last turn; it may be yet to come
	suspect bool      // the next look-up takes a turn
}

// turnShared is for how long the intents of a tile share its turn.
const turnShared = time.Second

func (t turn) shared(now time.Time) bool { return now.Before(t.at.Add(turnShared)) }

func newTurns(r Rate, longest time.Duration, tiles int) *turns {
	return &turns{longest: longest, bucket: r.bucket(), tiles: lru.New[fence.TileID, turn](tiles),
		actors: lru.New[string, *rate.Limiter](tiles)}
}

// suspect notes that a tile's owner could not be found or reached.
func (t *turns) suspect(id fence.TileID) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, _ := t.tiles.Get(id)
	t.tiles.Put(id, turn{at: last.at, suspect: true})
}

// trust notes that a tile's owner has answered.
func (t *turns) trust(id fence.TileID) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, known := t.tiles.Get(id)
	switch {
	case !known:
	case last.shared(time.Now()): // intents that looked for the owner before are yet to come
		t.tiles.Put(id, turn{at: last.at})
	default:
		t.tiles.Remove(id)
	}
}

// take takes a turn for a tile that is suspect. Otherwise, or if it has a turn already, nothing is waited for.
func (t *turns) take(id fence.TileID, actor string) (wait time.Duration, ok bool) {
	if t == nil {
		return 0, true
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	last, _ := t.tiles.Get(id)
	now := time.Now()
	switch {
	case !last.suspect:
		return 0, true
	case last.shared(now):
		return max(0, last.at.Sub(now)), true
	}
	caused, known := t.actors.Get(actor)
	if !known {
		caused = fewTurns.bucket()
		t.actors.Put(actor, caused)
	}
	longest := t.longest
	if !caused.AllowN(now, 1) {
		longest = 0
	}
	if wait, ok = reserve(t.bucket, longest); ok {
		t.tiles.Put(id, turn{at: now.Add(wait), suspect: true})
	}
	return wait, ok
}

// shape waits for the turn of an intent, and counts it. If the intent is refused, its error is limit with the time
// after which there would be a turn.
func (g *Gateway) shape(ctx context.Context, limit LimitError, wait time.Duration, ok bool) error {
	if wait == 0 && ok {
		return nil
	}
	if ok {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			ok = false // its caller has left
		}
	}
	g.counts.shaped(limit.Scope, wait, !ok)
	if ok {
		return nil
	}
	refused := limit // which so escapes to the heap only here
	refused.RetryAfter = wait
	return &refused
}
