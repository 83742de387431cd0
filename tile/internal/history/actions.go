package history

import (
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// The remembered outcomes of a tile are part of every snapshot of it, which may take fence.MaxSnapshot bytes. These
// bound them; whichever is reached first. An action that would go past a bound is refused before it is decided.
const (
	// MaxRemembered is the most outcomes that a tile remembers: 218 actions a second for ten minutes.
	MaxRemembered = 128 << 10
	// MaxRememberedBytes is the most bytes that they take in a snapshot. A game whose own state takes more than
	// the rest of the snapshot leaves them less.
	MaxRememberedBytes = 8 << 20
)

// snapshotReserve is kept free in a snapshot: for the actions of one batch, of which some may have been presented
// before and cannot be refused, and for a game's state that grows until the next snapshot.
const snapshotReserve = fence.MaxPayload

// Actions remembers the outcomes of recent actions. It is part of the tile's state: built from the
// committed resolutions alone, so every owner remembers the same.
//
// An outcome is forgotten when it is old by the tick and by the time for which this process has known of it. The tick
// is read back from the store, and a tick that was raised there must not forget what a retry would then apply again. A
// process that has read an outcome late keeps it for longer than another, which is harmless: the first outcome stands.
type Actions struct {
	moves    int           // of the outcomes, those of movements
	Interval time.Duration // the shortest time between two ticks; 0: the time does not count
	keep     fence.Tick    // forget outcomes older than this
	outcomes map[string]stream.Outcome
	order    []remembered // by tick
	bytes    int          // in a snapshot, at most

	Senders map[string]string // the actors of the actions that are folded next, by action; set by an owner
	shares  map[string]*usage // by actor
}

type remembered struct {
	tick    fence.Tick
	outcome stream.Outcome
	id      string
	since   time.Time // at the latest since then it is known; zero: it was not asked
	by      *usage    // nil: it is not known whose it was
}

// MoveMark begins the ID under which the outcome of a movement is remembered. The name of no action begins with it.
const MoveMark = "\x00"

// IsMove reports whether an ID is that of a movement.
func IsMove(id string) bool { return strings.HasPrefix(id, MoveMark) }

// RememberedSize is what an action takes in a snapshot at most: tick, outcome and the length of the ID beside the ID.
func RememberedSize(id string) int { return 8 + 1 + 1 + len(id) }

// add records the resolutions of a committed batch and forgets what is too old.
func (m *Actions) add(tick fence.Tick, resolutions []stream.Resolution) {
	if len(resolutions) > 0 {
		now := m.now()
		for _, r := range resolutions {
			m.put(remembered{tick: min(tick, fence.FarTick), outcome: r.Outcome, id: r.ActionID, since: now})
		}
	}
	m.Expire(tick)
}

func (m *Actions) now() (now time.Time) {
	if m.Interval > 0 {
		now = time.Now()
	}
	return now
}

// restore takes the actions of a snapshot. The newest may have been decided a moment ago; the others are older by the
// ticks between, which take Interval at least.
func (m *Actions) restore(actions []remembered) {
	now, newest := m.now(), fence.Tick(0)
	for i := range actions {
		newest = max(newest, actions[i].tick)
	}
	for _, a := range actions {
		a.since = now.Add(-m.Interval * time.Duration(min(newest-a.tick, m.keep+1)))
		m.put(a)
	}
}

func (m *Actions) put(r remembered) {
	if _, again := m.outcomes[r.id]; again {
		return // the first outcome stands
	}
	if m.outcomes == nil {
		m.outcomes = map[string]stream.Outcome{}
	}
	m.outcomes[r.id] = r.outcome
	if IsMove(r.id) {
		m.moves++
	}
	m.charge(&r)
	m.order = append(m.order, r)
	m.bytes += RememberedSize(r.id)
}

// Expire forgets what is too old at a tick. It is called for every tick, also for those that commit nothing.
func (m *Actions) Expire(now fence.Tick) {
	n := 0
	for ; n < len(m.order) && m.order[n].tick+m.keep < now && m.outlived(&m.order[n]); n++ {
		delete(m.outcomes, m.order[n].id)
		m.bytes -= RememberedSize(m.order[n].id)
		if IsMove(m.order[n].id) {
			m.moves--
		}
		m.discharge(&m.order[n])
		m.order[n] = remembered{} // the array outlives the slice
	}
	m.order = m.order[n:]
}

// outlived reports whether an outcome is old by the time. Ticks that are rounded up make it a tick older.
func (m *Actions) outlived(r *remembered) bool {
	return m.Interval <= 0 || time.Since(r.since) > m.Interval*time.Duration(max(1, m.keep)-1)
}

// Outcome is the outcome of an action, if it is remembered.
func (m *Actions) Outcome(id string) (stream.Outcome, bool) {
	o, ok := m.outcomes[id]
	return o, ok
}

// allows reports whether n more actions, whose IDs take bytes in a snapshot, can be remembered beside a game's state.
func (m *Actions) allows(n, bytes, game int) bool {
	freeN, freeBytes := m.free(game)
	return n <= freeN && bytes <= freeBytes
}

// free is how many more actions can be remembered beside a game's state, and how many bytes they may take in a
// snapshot.
func (m *Actions) free(game int) (n, bytes int) {
	limit := min(MaxRememberedBytes, fence.MaxSnapshot-snapshotReserve-game)
	return MaxRemembered - len(m.order), limit - m.bytes
}

// Size is how many outcomes are remembered, and how many bytes they take in a snapshot at most.
func (m *Actions) Size() (n, bytes int) { return len(m.order), m.bytes }

func (m *Actions) reset() { *m = Actions{keep: m.keep, Interval: m.Interval} }

// Outcomes are the actions that a snapshot and the entries after it have decided, as far as they remember them.
func Outcomes(s *fence.Snapshot, tail []fence.Entry) (map[string]stream.Outcome, error) {
	outcomes := map[string]stream.Outcome{}
	if len(s.Blob) > 0 {
		e, err := openEnvelope(s.Blob)
		if err != nil {
			return nil, err
		}
		for _, a := range e.actions {
			if !IsMove(a.id) {
				outcomes[a.id] = a.outcome
			}
		}
	}
	for i := range tail {
		b, err := stream.DecodeBatch(&tail[i])
		if err != nil {
			return nil, err
		}
		for _, r := range b.Resolutions {
			if _, again := outcomes[r.ActionID]; !again && !IsMove(r.ActionID) { // the first outcome stands
				outcomes[r.ActionID] = r.Outcome
			}
		}
	}
	return outcomes, nil
}

// shareOf is which part of the free memory an actor's outcomes may take: a dynamic threshold (Choudhury and Hahne,
// "Dynamic queue length thresholds for shared-memory packet switches"). The more actors fill their shares, the smaller
// these are, and something stays free: of n actors that take all they can, each has 1/(shareOf+n) of the memory, and
// shareOf times as much is left for others.
const shareOf = 8

// usage is what one actor's outcomes take of the memory.
type usage struct {
	actor    string
	n, bytes int
}

// charge books an outcome on the actor that sent the action, if that is known: an owner knows it of the actions that it
// has decided. Those that it found were charged by the owners before it.
func (m *Actions) charge(r *remembered) {
	actor := m.Senders[r.id]
	if actor == "" {
		return
	}
	u := m.shares[actor]
	if u == nil {
		if m.shares == nil {
			m.shares = map[string]*usage{}
		}
		u = &usage{actor: actor}
		m.shares[actor] = u
	}
	u.n++
	u.bytes += RememberedSize(r.id)
	r.by = u
}

// discharge is called when an outcome is forgotten.
func (m *Actions) discharge(r *remembered) {
	u := r.by
	if u == nil {
		return
	}
	u.bytes -= RememberedSize(r.id)
	if u.n--; u.n == 0 {
		delete(m.shares, u.actor)
	}
}

// Reservation is room in the memory for the outcomes of one tick's actions.
type Reservation struct {
	h        *History
	n, bytes int
	moves    int
	own      map[string]usage // by actor
}

// Reserve begins a reservation.
func (h *History) Reserve() *Reservation { return &Reservation{h: h} }

// Add reserves room for an action, and reports whether there is: in all, and in its actor's share. An empty actor has
// no share, and takes what is free. What must be remembered has room in any case.
func (r *Reservation) Add(id, actor string, must bool) bool {
	m, size := &r.h.Actions, RememberedSize(id)
	own := r.own[actor]
	own.n, own.bytes = own.n+1, own.bytes+size
	if !must {
		if !r.h.Actions.allows(r.n+1, r.bytes+size, r.h.beside()) {
			return false
		}
		if IsMove(id) && 2*(m.moves+r.moves) >= MaxRemembered {
			return false // what costs something has room for as long
		}
		has := own
		if u := m.shares[actor]; u != nil {
			has.n, has.bytes = has.n+u.n, has.bytes+u.bytes
		}
		n, bytes := m.free(r.h.beside())
		if actor != "" && (has.n*shareOf > n-r.n || has.bytes*shareOf > bytes-r.bytes) {
			return false
		}
	}
	r.n, r.bytes = r.n+1, r.bytes+size
	if IsMove(id) {
		r.moves++
	}
	if actor != "" {
		if r.own == nil {
			r.own = map[string]usage{}
		}
		r.own[actor] = own
	}
	return true
}
