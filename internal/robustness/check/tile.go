package check

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// Tile is one tile's part of a history, as the checks need it.
type Tile struct {
	ID         fence.TileID
	Records    []*history.Record    // of the tile, and the faults; in order of time
	Operations []*history.Operation // by time of call
	Final      *history.FinalTile   // nil: not recorded
	FinalAt    int64

	Entries  map[history.Position]*Entry // every entry that was presented to the store or seen in it
	Lineage  []*Entry                    // the history that survived, oldest first; see the package comment
	Survives map[history.Position]int    // index in Lineage of what survived

	// Unknown is where the lineage was lost: a position that no client presented and no observer saw. Zero when it
	// reaches back to the tile's beginning, and in a partial history.
	Unknown history.Position

	// Since is where the lineage of a partial history begins, if that is not the tile's beginning.
	Since   history.Position
	partial bool          // the history begins somewhere, and may lack what a killed process had to record
	skew    time.Duration // by which the clocks of its processes may differ

	journaled map[journaled]bool        // what the journal has taken
	rejoined  map[history.Position]bool // where claimants that had served went on with the state of the stores

	patience time.Duration // with one linearizability check; zero: linearizeTimeout

	check string // that judges
	found []Violation
}

// Entry is everything that is known of one place in a tile's history.
type Entry struct {
	history.Entry
	Seen      bool                 // an observer read it; otherwise it is what was presented
	SeenAt    int64                // when it was first read
	Presented []*history.Operation // the commits or rebases that presented it, by time of call

	// Base, of a rebase, is the position of the state it installed: what the claimant held, or the snapshot
	// with the same state. Zero for a tile that began empty.
	Base history.Position
}

// Parent is the position that the entry's state was made from.
func (e *Entry) Parent() history.Position {
	if e.Rebase {
		return e.Base
	}
	return e.Prev
}

// NewTile gathers a tile's part of a history.
func NewTile(h *history.History, id fence.TileID) *Tile {
	t := &Tile{ID: id}
	t.gather(h)
	return t
}

func (t *Tile) gather(h *history.History) {
	id := t.ID
	t.Entries, t.Survives = map[history.Position]*Entry{}, map[history.Position]int{}
	for i := range h.Records {
		if r := &h.Records[i]; r.Tile == id || r.Kind == history.Fault {
			t.Records = append(t.Records, r)
		}
	}
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Tile == id {
			t.Operations = append(t.Operations, o)
		}
	}
	t.gatherSeen()
	t.gatherPresented()
	t.gatherReported()
	t.findBases()
	t.trace()
}

// learn fills in the actions of an entry that was first seen by a watcher, who is not sent them: the digest covers
// them all the same.
func (e *Entry) learn(payload string, actions []history.Action) {
	if e.Payload == payload && len(e.Actions) == 0 {
		e.Actions = actions
	}
}

func (t *Tile) entry(at history.Position) *Entry {
	e := t.Entries[at]
	if e == nil {
		e = &Entry{Entry: history.Entry{Position: at}}
		t.Entries[at] = e
	}
	return e
}

func (t *Tile) gatherSeen() {
	see := func(got *history.Entry, at int64) {
		e := t.entry(got.Position)
		if !e.Seen {
			e.Entry, e.Seen, e.SeenAt = *got, true, at
		}
		e.learn(got.Payload, got.Actions)
	}
	for _, r := range t.Records {
		switch r.Kind {
		case history.Saw, history.Published, history.Frame:
			see(r.Entry, r.At)
		case history.Final:
			t.Final, t.FinalAt = r.Final, r.At
			for j := range r.Final.Entries {
				see(&r.Final.Entries[j], r.At)
			}
		}
	}
}

func (t *Tile) gatherPresented() {
	for _, o := range t.Operations {
		switch {
		case o.Kind == history.Commit && !o.Commit.Refresh():
			c := o.Commit
			e := t.entry(c.Next)
			if !e.Seen {
				e.Entry = history.Entry{Position: c.Next, Prev: c.Prev, Tick: c.Tick, Events: c.Events,
					Payload: c.Payload}
			}
			e.learn(c.Payload, c.Actions)
			e.Presented = append(e.Presented, o)
		case o.Kind == history.Rebase:
			// A rebase presented again further on is the same one, and is answered with its first position.
			at := o.Rebase.Next
			if o.Applied() {
				at = o.Result.Position
			}
			e := t.entry(at)
			e.Rebase = true
			e.Tick = o.Rebase.Tick
			e.Presented = append(e.Presented, o)
		}
	}
}

// journaled is a batch that a claimant has brought into the journal.
type journaled struct {
	actor string
	at    history.Position
}

func (t *Tile) gatherReported() {
	t.journaled, t.rejoined = map[journaled]bool{}, map[history.Position]bool{}
	for _, r := range t.Records {
		switch r.Kind {
		case history.Journaled:
			t.journaled[journaled{r.Actor(), r.Position}] = true
		case history.Life:
			if at := r.Life.Rejoined; !at.IsZero() {
				t.rejoined[at] = true
			}
		}
	}
}

// findBases says for each rebase which state it installed. A claimant that has served rebases on what it
// holds; one that has not restores a checkpoint, which is known by its bytes, or begins empty. Either goes on from its
// journal if that is further.
func (t *Tile) findBases() {
	claimants, states := claimants{}, states{}
	bases, journals, lives := t.bases(), t.journals(), t.lives()
	for _, o := range t.Operations {
		for len(bases) > 0 && bases[0].At < o.At {
			states.saw(bases[0].Snapshot)
			bases = bases[1:]
		}
		for ; len(lives) > 0 && lives[0].At < o.At; lives = lives[1:] {
			claimants.of(lives[0].Actor()).served = true
		}
		c := claimants.of(o.Actor())
		switch o.Kind {
		case history.Snapshot:
			states.saw(o.Snapshot)
		case history.Commit:
			c.heard(t, o)
		case history.Rebase:
			c.read = journals.between(o, c.since)
			t.findBase(o, c, states)
		}
	}
}

// states says, by the checksum of a state, where the tile was in it. Of the game's part of a state the checksum has a
// prefix.
type states map[string][]history.Position

const ofGame = "game "

func (s states) saw(c *history.SnapshotCall) {
	s[c.State] = append(s[c.State], c.Position)
	s[ofGame+c.Game] = append(s[ofGame+c.Game], c.Position)
}

// lives are the moments at which claimants began to serve, in order of time.
func (t *Tile) lives() (all []*history.Record) {
	for _, r := range t.Records {
		if r.Kind == history.Life && r.Life.State == tile.Serving.String() {
			all = append(all, r)
		}
	}
	return all
}

// bases are the snapshots that claimants laid as their journals' bases, in order of time. An owner that has rebased
// lays one with the state that it restored, so only those laid before a rebase say what that was made from.
func (t *Tile) bases() (all []*history.Record) {
	for _, r := range t.Records {
		if r.Kind == history.Based {
			all = append(all, r)
		}
	}
	return all
}

// journals are the records of claimants that read the tile's journal, by claimant and in order of time.
type journals map[string][]*history.Record

func (t *Tile) journals() journals {
	all := journals{}
	for _, r := range t.Records {
		if r.Kind == history.Recovered {
			all[r.Actor()] = append(all[r.Actor()], r)
		}
	}
	return all
}

// between is where the journal ended that the operation's claimant had read last, after a time.
func (j journals) between(o *history.Operation, after int64) (end history.Position) {
	for _, r := range j[o.Actor()] {
		if r.At > after && r.At < o.At {
			end = r.Position
		}
	}
	return end
}

// claimant is what a claimant knows of its own history.
type claimant struct {
	served bool       // by its own word, or more than an install
	tick   fence.Tick // of its last rebase
	holds  history.Position
	since  int64            // when it learned that
	read   history.Position // where the journal ended that it has read since then
}

// claimants are all of a tile.
type claimants map[string]*claimant

func (all claimants) of(actor string) *claimant {
	c := all[actor]
	if c == nil {
		c = &claimant{}
		all[actor] = c
	}
	return c
}

// heard takes the answer to a commit. An install under a higher epoch on another history makes a newcomer of it.
func (c *claimant) heard(t *Tile, o *history.Operation) {
	if at := o.Result.Position; t.settles(o) && (at.Epoch > c.holds.Epoch || at.Seq > c.holds.Seq) {
		if o.Commit.Install && at.Epoch > c.holds.Epoch && o.Commit.Prev != c.holds {
			c.served, c.tick = false, 0 // what it held, and rebased on, is not what it goes on from
		}
		c.holds, c.since = at, o.Returned
	}
	c.served = c.served || !o.Commit.Install && o.Applied()
}

func (t *Tile) findBase(o *history.Operation, c *claimant, states states) {
	at := written(o)
	if o.Rebase.Tick < c.tick {
		c.served = false // who rebases on what it holds never goes back: this is the state of the stores
	}
	c.tick = o.Rebase.Tick
	base, served := c.holds, c.served && !t.rejoined[at]
	switch replaces := o.Rebase.Replaces; {
	case !served:
		base = t.newcomersBase(o, c, states)
	case replaces != nil && t.presents(o.Actor(), *replaces, base):
		base, c.holds = *replaces, *replaces // its own batch, of which no answer had told
	}
	if c.read.Seq < o.Rebase.Next.Seq && t.ahead(c.read, base) && !(served && t.pending(o.Actor(), c.read, base)) {
		base = c.read
	}
	if e := t.Entries[at]; e.Base.IsZero() && base != at {
		e.Base = base
	}
	if o.Result.Outcome == history.OK {
		c.served, c.holds, c.since = true, o.Result.Position, o.Returned
	}
	for _, sum := range []string{o.Rebase.State, ofGame + o.Rebase.Game} {
		if len(states[sum]) == 0 {
			states[sum] = []history.Position{at}
		}
	}
}

// newcomersBase is what a claimant took up that goes on from the stores: what it replaces, or, where the tile is known
// to have had that state, what it restored.
func (t *Tile) newcomersBase(o *history.Operation, c *claimant, states states) history.Position {
	read := c.holds
	if o.Rebase.Replaces != nil {
		read = *o.Rebase.Replaces
	}
	// The last: two empty tiles look the same, and what a rebase restored came before it. It is of a lower epoch, if
	// there is one.
	var known history.Position
	below := func(p history.Position) bool { return p.Epoch < o.Rebase.Epoch }
	for _, p := range t.inState(o.Rebase, read, states) {
		if p.Seq < o.Rebase.Next.Seq && (known.IsZero() || below(p) || !below(known)) {
			known = p
		}
	}
	if known.IsZero() || t.adds(read, known) == installs {
		return read
	}
	// Two claimants that read the same journal make the same state, and so do two that go on from the same history: one
	// is not made from the other.
	switch e := t.Entries[known]; {
	case e == nil || !e.Rebase:
	case !c.read.IsZero() && e.Base == c.read:
		return c.read
	case t.adds(read, e.Base) == installs, t.adds(e.Base, read) == installs:
		return read
	}
	return known
}

// inState is where the tile was in the state of a rebase. Who restores a snapshot forgets the outcomes in it that are
// too old by then; the game's part is as it was. None are named if that is what the claimant has read.
func (t *Tile) inState(r *history.RebaseCall, read history.Position, states states) []history.Position {
	if same := states[r.State]; len(same) > 0 || r.Game == "" {
		return same
	}
	same := states[ofGame+r.Game]
	if slices.ContainsFunc(same, func(p history.Position) bool { return t.adds(read, p) < events }) {
		return nil
	}
	return same
}

// What a history adds to the state at a position before its end.
type addition int

const (
	installs addition = iota // nothing
	outcomes                 // nothing to the game's part
	events                   // something, or the position is not in it
)

// adds says what the history that ends at a position adds to the state at another.
func (t *Tile) adds(at, above history.Position) (what addition) {
	for e := t.Entries[at]; at != above; e = t.Entries[at] {
		switch {
		case e == nil || e.Rebase || e.Events > 0 || e.Prev.Seq >= at.Seq:
			return events
		case len(e.Actions) > 0:
			what = outcomes
		}
		at = e.Prev
	}
	return what
}

// pending reports whether a batch is the one that a claimant at a position did not know to be in the journal. One that
// has served goes on from memory, and decides its actions again: no player was answered.
func (t *Tile) pending(actor string, batch, at history.Position) bool {
	return t.presents(actor, batch, at) && !t.journaled[journaled{actor, batch}]
}

// presents reports whether a claimant at a position has presented a batch that follows it.
func (t *Tile) presents(actor string, batch, at history.Position) bool {
	e := t.Entries[batch]
	return e != nil && e.Prev == at &&
		slices.ContainsFunc(e.Presented, func(o *history.Operation) bool { return o.Actor() == actor })
}

// ahead reports whether a journal has what the history that ends at a position lacks, and no owner has served without
// it. Sequences do not tell: claimants that install themselves and die add to a history that a failover has cut off.
func (t *Tile) ahead(journal, at history.Position) bool {
	for passed := map[history.Position]bool{}; !at.IsZero() && !passed[at]; {
		e := t.Entries[at]
		if at == journal || e == nil {
			return at != journal && journal.Seq > at.Seq
		}
		if at.Epoch > journal.Epoch && (e.Rebase || e.Events > 0 || len(e.Actions) > 0) {
			return false
		}
		passed[at] = true
		at = e.Parent()
	}
	return !journal.IsZero()
}

// trace walks from where the tile ended to its beginning.
func (t *Tile) trace() {
	if t.Final == nil {
		return
	}
	var back []*Entry
	restored := false
	passed := map[history.Position]bool{}
	for at := t.Final.End; !at.IsZero() && !passed[at]; {
		passed[at] = true
		e := t.Entries[at]
		if e == nil {
			t.Unknown = at
			break
		}
		back = append(back, e)
		if at = e.Parent(); at.IsZero() && e.Rebase && e.Position.Seq > 1 {
			restored = true // from a state that is not in the history, or after other owners without one
		}
	}
	if t.partial && len(back) > 0 && (restored || !t.Unknown.IsZero()) {
		t.Since, t.Unknown = back[len(back)-1].Position, history.Position{}
	}
	for i := len(back) - 1; i >= 0; i-- {
		t.Survives[back[i].Position] = len(t.Lineage)
		t.Lineage = append(t.Lineage, back[i])
	}
}

// survived reports whether a position is part of the history that survived.
func (t *Tile) survived(at history.Position) bool {
	_, ok := t.Survives[at]
	return ok || at.IsZero()
}

// descends reports whether the state at a position was made from the one at ancestor.
func (t *Tile) descends(at, ancestor history.Position) bool {
	passed := map[history.Position]bool{}
	for !passed[at] {
		if at == ancestor {
			return true
		}
		passed[at] = true
		e := t.Entries[at]
		if e == nil {
			return false
		}
		at = e.Parent()
	}
	return false
}

// failover reports whether another copy of the store may have begun to answer in a span of time.
func (t *Tile) failover(from, to int64) bool {
	return slices.ContainsFunc(t.Records, func(r *history.Record) bool {
		return r.Kind == history.Fault && r.Fault.Failover && r.At >= from && r.At <= to
	})
}

// lost reports whether every copy of the store may have been lost at a time or since. What an answer confirms may have
// been confirmed, and lost, at any time since its call.
func (t *Tile) lost(since int64) bool {
	return slices.ContainsFunc(t.Records, func(r *history.Record) bool {
		return r.Kind == history.Fault && r.Fault.Loses && r.At >= since
	})
}

// calls are the operations that accept takes, for porcupine.
func (t *Tile) calls(accept func(*history.Operation) bool) (operations []porcupine.Operation) {
	for _, o := range t.Operations {
		if accept(o) {
			operations = append(operations, porcupine.Operation{Input: o, Call: o.At, Return: o.Returned})
		}
	}
	return operations
}
