package tile

import (
	"context"
	"slices"
	"time"
)

// submission is one intent that waits for its outcome.
type submission struct {
	intent    Intent
	caller    context.Context     // ends when its caller has gone
	came      time.Time           // of an action
	answer    func(Result, error) // called once, also with mu held
	presented bool                // it has been part of a batch shown to the store
	repeats   bool                // one with its ActionID came before it, and may have been
}

// open reports whether the store may have a batch with the intent's outcome.
func (s *submission) open() bool { return s.presented || s.repeats }

// gone says why the caller does not wait for the outcome any more; nil: it does.
func (s *submission) gone(now time.Time) error {
	err := context.Cause(s.caller)
	if err == nil && !s.intent.Deadline.IsZero() && now.After(s.intent.Deadline) {
		err = context.DeadlineExceeded
	}
	if err != nil && s.open() {
		return &UnresolvedError{Tile: s.intent.Tile}
	}
	return err
}

// intentQueue holds the intents that wait for a tick, in the order in which they came. Limit counts those too that a
// tick has taken and not answered, so there is always room for what comes back from a batch that was given up.
//
// It is fair between actors. If it is full, the actor with the most waiting intents loses its newest ones to an actor
// with fewer (longest queue drop, as fair queueing in routers does it). If a tick cannot take all, the actors take
// turns. The game's own servers are taken first, lose nothing, and may fill half of the queue and of a tick.
type intentQueue struct {
	limit int

	subs    []submission   // those without an answer function were shed
	counts  map[string]int // waiting, by flow
	waiting int
	taken   int

	most  int       // no flow has more waiting; an upper bound, used while the queue is full
	swept time.Time // the last time that all were looked at

	behind map[string]bool // the flows that had more than the last tick took
	rounds []int           // scratch of turns
}

// serverFlow is the flow of the game's servers. A name of an actor has no control characters.
const serverFlow = "\x00server"

func (in *Intent) flow() string {
	if in.Origin == OriginServer {
		return serverFlow
	}
	return in.Actor
}

// shares is the actor in whose share of the tile's memory an action's outcome is. The servers' are in none.
func (in *Intent) shares() string {
	if in.Origin == OriginServer {
		return ""
	}
	return in.Actor
}

// sweepPause is at least how long a full queue waits between two searches for intents whose callers have gone.
const sweepPause = 20 * time.Millisecond

// add queues a submission, or reports that there is no room for it.
func (q *intentQueue) add(s submission) bool {
	flow := s.intent.flow()
	if !q.makeRoom(flow) {
		return false
	}
	if q.counts == nil {
		q.counts = map[string]int{}
	}
	q.counts[flow]++
	q.most = max(q.most, q.counts[flow])
	q.waiting++
	q.subs = append(q.subs, s)
	return true
}

// makeRoom sheds what has to leave for one more of a flow, and reports whether that is enough.
func (q *intentQueue) makeRoom(flow string) bool {
	full := func() bool {
		return q.waiting+q.taken >= q.limit || flow == serverFlow && q.counts[flow] >= max(1, q.limit/2)
	}
	if !full() {
		return true
	}
	if now := time.Now(); now.Sub(q.swept) >= sweepPause {
		q.sweep(now)
	}
	if !full() {
		return true
	}
	has := q.counts[flow]
	if flow == serverFlow {
		if has >= max(1, q.limit/2) {
			return false
		}
		has = 0
	}
	if has+1 < q.most {
		q.shed(has)
	}
	return !full()
}

// shed takes from the flow with the most waiting intents the newest quarter, or less: no fewer are left to it than the
// flow gets that has so many. What was shown to the store keeps its place, since its outcome is open.
func (q *intentQueue) shed(has int) {
	heaviest := ""
	q.most = 0
	for flow, n := range q.counts {
		if flow != serverFlow && (n > q.most || n == q.most && flow > heaviest) {
			heaviest, q.most = flow, n
		}
	}
	drop := min(max(1, q.most/4), q.most-has-1)
	for i := len(q.subs) - 1; i >= 0 && drop > 0; i-- {
		s := &q.subs[i]
		if s.answer != nil && !s.open() && s.intent.flow() == heaviest {
			q.leave(s, ErrOverloaded)
			drop--
		}
	}
	if len(q.subs) > q.waiting+q.limit/2 {
		q.compact()
	}
}

// leave answers a submission that waits, and takes it out.
func (q *intentQueue) leave(s *submission, err error) {
	flow := s.intent.flow()
	if q.counts[flow]--; q.counts[flow] == 0 {
		delete(q.counts, flow)
	}
	q.waiting--
	s.answer(Result{}, err)
	*s = submission{}
}

func (q *intentQueue) compact() {
	q.subs = slices.DeleteFunc(q.subs, func(s submission) bool { return s.answer == nil })
}

// sweep drops the intents whose callers do not wait any more: the rules are not asked about them.
func (q *intentQueue) sweep(now time.Time) {
	q.swept = now
	q.drop(func(s *submission) error { return s.gone(now) })
}

// drop answers every submission that waits with the error that why has for it, and keeps those for which it has none.
func (q *intentQueue) drop(why func(*submission) error) {
	for i := range q.subs {
		if s := &q.subs[i]; s.answer != nil {
			if err := why(s); err != nil {
				q.leave(s, err)
			}
		}
	}
	if q.waiting < len(q.subs) {
		q.compact()
	}
}

// take takes at most n submissions for a tick, in the order in which they came.
func (q *intentQueue) take(n int) []submission {
	q.compact()
	taken := q.subs
	if q.waiting > n {
		taken = q.turns(n)
	} else {
		q.subs, q.waiting, q.most = nil, 0, 0
		clear(q.counts)
		clear(q.behind)
	}
	q.taken = len(taken)
	return taken
}

// turns takes n of more submissions: the first n/2 of the servers', then the first of each flow, the second of each,
// and so on. In the last round those that came first are taken. An actor that is not behind, since it sends no more
// than ticks take, comes with the servers, as long as there are not too many.
func (q *intentQueue) turns(n int) []submission {
	size := q.order(n)
	last, room := 0, n // the round that is taken in part, and how many of it
	for last < len(size) && size[last] <= room {
		room -= size[last]
		last++
	}
	taken, rest := make([]submission, 0, n), q.subs[:0]
	for i := range q.subs {
		s, round := q.subs[i], q.rounds[i]
		if round < last || round == last && room > 0 {
			if round == last {
				room--
			}
			taken = append(taken, s)
			q.counts[s.intent.flow()]--
		} else {
			rest = append(rest, s)
		}
	}
	clear(q.subs[len(rest):])
	q.subs, q.waiting = rest, len(rest)
	clear(q.behind)
	if q.behind == nil {
		q.behind = map[string]bool{}
	}
	for flow, n := range q.counts {
		if n == 0 {
			delete(q.counts, flow)
		} else {
			q.behind[flow] = true
		}
	}
	return taken
}

// order says in which round each submission is, for a tick of n, and returns the size of each round.
func (q *intentQueue) order(n int) (size []int) {
	seen, fresh := make(map[string]int, len(q.counts)), 0
	q.rounds = slices.Grow(q.rounds[:0], len(q.subs))
	for i := range q.subs {
		flow := q.subs[i].intent.flow()
		seen[flow]++
		round := seen[flow]
		switch {
		case flow == serverFlow:
			round = max(0, round-(n+1)/2)
		case round == 1 && fresh < n/4 && !q.behind[flow]:
			fresh++
			round = 0
		}
		for len(size) <= round {
			size = append(size, 0)
		}
		size[round]++
		q.rounds = append(q.rounds, round)
	}
	return size
}

// requeue returns submissions that were taken to the front.
func (q *intentQueue) requeue(subs []submission) {
	if len(subs) == 0 {
		return
	}
	for i := range subs {
		flow := subs[i].intent.flow()
		if q.counts == nil {
			q.counts = map[string]int{}
		}
		q.counts[flow]++
		q.most = max(q.most, q.counts[flow])
	}
	q.waiting += len(subs)
	q.taken = max(0, q.taken-len(subs))
	q.subs = append(slices.Clone(subs), q.subs...)
}
