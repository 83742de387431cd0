package check

import (
	"cmp"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// OneOutcome is invariant 12 as far as a tile decides it: an action has one outcome, however often and
// wherever it is asked for, and its effects happen at most once. Every answer is the outcome that the
// history records; an answer for which the history that survived has nothing is one whose batch was lost
// (see OwnerKeeps and ConfirmedKept), never one that was not decided at all.
//
// It is broken when a successor does not remember what was decided, or a processor answers before its batch
// is in the store.
//
// If an action's first batch was lost, the next owner may decide it again and differently.
func OneOutcome(t *Tile) {
	actions := t.decisions()
	first := map[string]*history.Operation{}
	for _, o := range t.Operations {
		if o.Kind != history.Submit || o.Intent.Action == "" || o.Open() || o.Result.Outcome != history.OK {
			continue
		}
		id, answer := o.Intent.Action, o.Result.Answer
		d := actions[id]
		switch {
		case d == nil || !d.outcomes[answer]:
			t.breaks(o.Returned, "%s was answered that action %s is %s, which no batch decided", o.Actor(), id,
				answer)
		case d.lost:
		case d.survived != "" && d.survived != answer:
			t.breaks(o.Returned, "%s was answered that action %s is %s, the history says %s", o.Actor(), id, answer,
				d.survived)
		case first[id] != nil && first[id].Result.Answer != answer:
			t.breaks(o.Returned, "action %s was answered %s and %s", id, first[id].Result.Answer, answer)
		}
		if first[id] == nil {
			first[id] = o
		}
	}
}

// decision is what the batches that were in some store say of an action.
type decision struct {
	outcomes map[string]bool
	survived string // the outcome in the lineage; empty: none
	lost     bool   // a batch that decided it did not survive
}

func (t *Tile) decisions() map[string]*decision {
	decided := map[string]*decision{}
	for at, e := range t.Entries {
		if !e.Seen && !acknowledged(e) {
			continue
		}
		for _, a := range e.Actions {
			d := decided[a.ID]
			if d == nil {
				d = &decision{outcomes: map[string]bool{}}
				decided[a.ID] = d
			}
			d.outcomes[a.Outcome] = true
			if t.survived(at) {
				d.survived = a.Outcome
			} else {
				d.lost = true
			}
		}
	}
	return decided
}

// acknowledged reports whether a client was answered that an entry is in the store.
func acknowledged(e *Entry) bool {
	return slices.ContainsFunc(e.Presented, (*history.Operation).Applied)
}

// IdempotentCommits is invariant 5: a batch that is presented again is committed once. No action is decided twice
// along the lineage, no payload is committed twice under one epoch, and no writer is refused because of its own
// batch: a commit that presents the head's position is answered that it is there.
//
// It is broken when the store does not recognise its own last entry: the retry is appended again, or refused
// as if another client had written it.
//
// An action is remembered for as long as the tile's RememberFor; a run must be shorter than that.
func IdempotentCommits(t *Tile) {
	actions := map[string]history.Position{}
	type content struct {
		epoch   uint64
		tick    uint64
		payload string
	}
	batches := map[content]history.Position{}
	for _, e := range t.Lineage {
		for _, a := range e.Actions {
			if first, twice := actions[a.ID]; twice {
				t.breaks(e.SeenAt, "action %s was decided at %s and again at %s", a.ID, first, e.Position)
			}
			actions[a.ID] = e.Position
		}
		if e.Payload == "" || e.Rebase {
			continue
		}
		c := content{uint64(e.Position.Epoch), uint64(e.Tick), e.Payload}
		if first, twice := batches[c]; twice {
			t.breaks(e.SeenAt, "one batch was committed at %s and again at %s", first, e.Position)
		}
		batches[c] = e.Position
	}
	for _, o := range t.Operations {
		if o.Kind == history.Commit && !o.Commit.Refresh() && o.Result.Outcome == history.Refused &&
			o.Result.Reason != "stale" && o.Result.Reason != "noowner" && o.Result.Current.Position == o.Commit.Next {
			t.breaks(o.Returned, "%s was refused as %s although it is the last entry", o.Commit.Next, o.Result.Reason)
		}
	}
}

// RejectedStops is the second half of invariant 7: a writer that learned from the authority that the
// tile belongs to another claim presents no commit and no rebase any more. Its successor in the same process is
// another client. A record below its own epoch shows an authority that was restored: the writer may show the batch
// that was refused once more, to see whether a later owner moves, and no other, unless the store takes it: then a
// failover has lost the later owner's install. An owner that looks although the store has refused it nothing may go
// on: the holder of the record may be dead, and the store decides.
//
// It is broken when a processor misreads the authority's answer, or keeps presenting a batch from before it. It does
// not see an owner that goes on after it has handed its tile over, until the store has refused it.
func RejectedStops(t *Tile) {
	claims := map[string]string{} // ClaimID to the client that presented it
	for _, o := range t.Operations {
		if o.Claim != nil {
			claims[o.Claim.ID] = o.Actor()
		}
	}
	standings := map[string]*standing{}
	for _, o := range t.answersAndCalls() {
		s := standings[o.op.Actor()]
		if s == nil {
			s = &standing{}
			standings[o.op.Actor()] = s
		}
		if !o.answer {
			if s.breaks(o.op) {
				t.breaks(o.op.At, "%s presents a %s under epoch %d after it learned that %s holds the tile under %d",
					o.op.Actor(), o.op.Kind, s.grant.Epoch, s.to.Contact, s.to.Epoch)
				s.over = 0
			}
			continue
		}
		s.hear(&o, claims)
	}
}

// standing is what a client knows of its right to a tile.
type standing struct {
	grant history.Grant
	over  int64 // when it learned that the tile has another owner; zero: it did not
	to    history.Grant
	shown history.Position // by the commit that it presented last

	refused int64 // when the store had refused it; zero: it did not, or a write was applied since
}

// breaks reports whether a call is a write that the client knows it has no right to.
func (s *standing) breaks(o *history.Operation) bool {
	if o.Kind != history.Commit {
		return s.over != 0 && o.Kind == history.Rebase
	}
	again := o.Commit.Next == s.shown && s.to.Epoch < s.grant.Epoch
	s.shown = o.Commit.Next
	return s.over != 0 && !again
}

// hear takes an answer. claims are ClaimIDs and the clients that presented them.
func (s *standing) hear(o *event, claims map[string]string) {
	r := &o.op.Result
	switch o.op.Kind {
	case history.Commit, history.Rebase:
		switch {
		case r.Applied():
			s.refused = 0
		case r.Outcome == history.Refused && s.refused == 0:
			s.refused = o.at
		}
		if r.Applied() && s.to.Epoch < s.grant.Epoch {
			s.over = 0
		}
		return
	case history.Lookup:
		if s.refused == 0 || o.op.At < s.refused { // it may have asked for another reason, and not know the answer yet
			return
		}
	}
	switch g := r.Grant; {
	case g == nil || g.Epoch == 0:
	case claims[g.ID] == o.op.Actor() && r.Outcome == history.OK:
		s.grant, s.over = *g, 0
	case s.grant.Epoch > 0 && g.ID != s.grant.ID:
		s.over, s.to = o.at, *g
	}
}

// RejectedIsTold is the first half of invariant 7: a writer refused as stale learns the epoch that replaced
// it, above its own, and the contact; and a processor that ends superseded names both. The contact of a tile
// that was released meanwhile, or whose owner hash has expired, is empty. Where every copy was lost, or the authority
// restored, an owner may also give way to an earlier one that has gone on.
//
// It is broken when a refusal does not name the current owner, or when the store takes an owner without a
// contact.
func RejectedIsTold(t *Tile) {
	for _, o := range t.Operations {
		if o.Kind != history.Commit || o.Result.Outcome != history.Refused || o.Result.Reason != "stale" {
			continue
		}
		current := o.Result.Current
		switch {
		case current.Epoch == 0 && current.Position.Epoch <= o.Commit.Epoch:
			t.breaks(o.Returned, "%s was refused as stale under epoch %d by a stream that ends at %s", o.Actor(),
				o.Commit.Epoch, current.Position)
		case current.Epoch > 0 && (current.Epoch <= o.Commit.Epoch || current.Contact == ""):
			t.breaks(o.Returned, "%s was refused as stale under epoch %d by epoch %d at %q", o.Actor(),
				o.Commit.Epoch, current.Epoch, current.Contact)
		}
	}
	for _, r := range t.Records {
		if r.Kind != history.Life || r.Life.Successor == nil {
			continue
		}
		if s := r.Life.Successor; s.Epoch <= r.Life.Epoch && !t.restored(0, r.At) && !t.lost(0) {
			t.breaks(r.At, "%s ended under epoch %d, superseded by epoch %d at %q", r.Actor(), r.Life.Epoch, s.Epoch,
				s.Contact)
		}
	}
}

// restored reports whether the authority was restored to an older state in a span of time.
func (t *Tile) restored(from, to int64) bool {
	return slices.ContainsFunc(t.Operations, func(o *history.Operation) bool {
		return o.Kind == history.Restore && o.At <= to && o.Returned >= from
	})
}

// event is a call or an answer of an operation.
type event struct {
	op     *history.Operation
	at     int64
	answer bool
}

// Decided judges one tile of what processes have logged of their decisions (history.Decided). The logs may begin in the
// middle of a tile's life, one of a killed process lacks its end, the tile may have owners that log nothing, and the
// clocks of the processes may differ by skew. So a check of All that needs a whole history, or the calls of all
// parties, is not among them. With gaps, where events were dropped, those that follow an owner from step to step are
// left out as well.
//
// The violations are in order of time; the tile says what is known of it.
func Decided(h *history.History, id fence.TileID, skew time.Duration, gaps bool) (*Tile, []Violation) {
	t := &Tile{ID: id, partial: true, skew: skew}
	t.gather(h)
	checks := []Check{
		{"epochs are unique", EpochsUnique},
		{"epochs climb", EpochsClimb},
		{"one writer", OneWriter},
		{"sequence climbs", SequenceClimbs},
		{"no fork", NoFork},
		{"replay complete", ReplayComplete},
		{"idempotent commits", IdempotentCommits},
		{"confirmed is kept", ConfirmedKept},
		{"rejected writer learns", RejectedIsTold},
		{"commits linearizable", CommitsLinearizable},
		{"answers follow the table", AnswersFollowTable},
	}
	if !gaps {
		checks = append(checks, Check{"owner keeps", OwnerKeeps}, Check{"rejected writer stops", RejectedStops},
			Check{"asks first", AsksFirst}, Check{"installed before served", InstalledBeforeServed})
	}
	for _, c := range checks {
		t.check = c.Name
		c.Judge(t)
	}
	slices.SortStableFunc(t.found, func(a, b Violation) int { return cmp.Compare(a.At, b.At) })
	return t, t.found
}

// Foreign counts entries that the stream shows and no log of a partial history has: another process wrote them, or one
// that was killed before it had logged them. What came before the first logged write does not count.
func (t *Tile) Foreign() (n int) {
	var first fence.Seq
	for _, e := range t.Entries {
		if len(e.Presented) > 0 && (first == 0 || e.Position.Seq < first) {
			first = e.Position.Seq
		}
	}
	for _, e := range t.Entries {
		if e.Seen && len(e.Presented) == 0 && e.Position.Seq > first {
			n++
		}
	}
	return n
}
