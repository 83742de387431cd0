package tile

import (
	"errors"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/transfer"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/history"
	"github.com/tilefence/tilefence/tile/internal/retry"
	"github.com/tilefence/tilefence/tile/internal/turn"
)

// pendingBatch is a tick's batch from the moment it is formed until its outcome is known. Its commit does not change
// meanwhile, except that a batch met by a missing owner hash is presented as an install.
type pendingBatch struct {
	commit      fence.Commit
	batch       stream.Batch
	submissions []submission
	outcomes    []stream.Outcome // per submission
	why         []string         // of the first of them; see Outputs.Why
	crossed     transfer.Crossed // the tile's border
	offered     *transfer.Offer  // what it decides beside the submissions; nil: nothing
	formed      time.Time
	asked       bool          // the rules have decided it
	resolve     time.Duration // in the game's rules, before
	attempts    int
	timeouts    int // of the last attempts, how many in a row had no answer within CommitTimeout

	committing  time.Duration // in the store's calls, until the batch was known to be on the master
	journaling  time.Duration // in the journal's
	unconfirmed time.Time     // when it was first known to be on the master and not on enough replicas
	anew        bool          // there was no owner hash: this owner installs itself anew
	waits       bool          // it is on the master, and waits for replicas or the journal
}

// newPending makes the batch of a tick from what the rules have decided. The error says that it does not fit.
func newPending(c fence.Commit, subs []submission, batch stream.Batch, d *Outputs) (*pendingBatch, error) {
	b := &pendingBatch{submissions: subs, formed: time.Now(), commit: c, batch: batch, why: d.Why}
	if len(subs) > 0 {
		b.outcomes = make([]stream.Outcome, len(subs))
	}
	for i := range subs {
		b.outcomes[i] = stream.Rejected
		if i < len(d.Outcomes) && d.Outcomes[i].Valid() {
			b.outcomes[i] = d.Outcomes[i]
		}
		if id := subs[i].intent.key(); id != "" {
			b.batch.Resolutions = append(b.batch.Resolutions, stream.Resolution{ActionID: id, Outcome: b.outcomes[i]})
		}
	}
	b.commit.At = b.formed
	if b.batch.Len() == 0 {
		b.batch.StateSum = 0 // nothing is committed only to say it
	}
	var err error
	if b.commit.Payload, b.commit.Private, err = b.batch.Encode(); err != nil && b.batch.StateSum != 0 {
		b.batch.StateSum = 0 // what the game has to say comes first
		b.commit.Payload, b.commit.Private, err = b.batch.Encode()
	}
	return b, err
}

// result is what the sender of a submission gets.
func (b *pendingBatch) result(i int) Result {
	r := Result{Outcome: b.outcomes[i]}
	if i < len(b.why) {
		r.Why = fence.AsName(b.why[i], MaxWhy)
	}
	return r
}

// acts reports whether it has the outcome of an action: that of a movement costs nothing.
func (b *pendingBatch) acts() bool {
	return slices.ContainsFunc(b.batch.Resolutions, func(r stream.Resolution) bool {
		return !history.IsMove(r.ActionID)
	})
}

// senders are the actors of its actions, by action.
func (b *pendingBatch) senders() map[string]string {
	if len(b.batch.Resolutions) == 0 {
		return nil
	}
	senders := make(map[string]string, len(b.batch.Resolutions))
	for i := range b.submissions {
		if in := &b.submissions[i].intent; in.ActionID+in.MoveID != "" {
			senders[in.key()] = in.shares()
		}
	}
	return senders
}

// attempted notes one attempt to commit, of which the journal took a part.
func (b *pendingBatch) attempted(took, journaling time.Duration, timedOut bool) {
	b.attempts++
	b.journaling += journaling
	if b.unconfirmed.IsZero() {
		b.committing += took - journaling
	}
	if timedOut {
		b.timeouts++
	} else {
		b.timeouts = 0
	}
}

// landed is where the stream ends when an attempt has brought the batch to the master, but not to where it must be
// before it counts.
func (b *pendingBatch) landed(err error) (fence.Position, bool) {
	if u, ok := errors.AsType[*fence.UnconfirmedError](err); ok {
		if b.unconfirmed.IsZero() {
			b.unconfirmed = time.Now()
		}
		return u.Receipt.Position, true
	}
	if j, ok := errors.AsType[*journalError](err); ok {
		return j.receipt.Position, true
	}
	return fence.Position{}, false
}

// retryAfter is how long the batch waits to be presented again. A refusal or an error that comes quickly
// is what a failover looks like, and the new master may be there any moment. A store that lets CommitTimeout pass
// has more to do than it can, and is not asked again by all tiles at once: the wait begins between one and two
// eighths of CommitTimeout, its place there being the tile's own, and doubles up to retry.MaxBackoff.
func (b *pendingBatch) retryAfter(cfg *Config) time.Duration {
	switch {
	case b.timeouts == 0 && b.waits:
		return min(retry.Backoff(b.attempts), cfg.TickInterval) // the owner hash is to be refreshed
	case b.timeouts == 0:
		return retry.Backoff(b.attempts)
	}
	base := min(cfg.CommitTimeout/8<<min(b.timeouts-1, 6), retry.MaxBackoff/2)
	return base + time.Duration(turn.Place(b.commit.Tile, turn.Retry, uint64(base)))
}

// info describes the commit that succeeded.
func (b *pendingBatch) info(at fence.Position, class Durability) CommitInfo {
	i := CommitInfo{Tile: b.commit.Tile, Position: at, Tick: b.commit.Tick, Events: len(b.batch.Events),
		Bytes: len(b.commit.Payload) + len(b.commit.Private), Took: time.Since(b.formed), Refresh: b.commit.Refresh(),
		Durability: class, Resolve: b.resolve, Committing: b.committing, Journaling: b.journaling}
	i.Departures = len(b.batch.Departures)
	for j := range b.batch.Decisions {
		i.Refused += len(b.batch.Decisions[j].Refused)
	}
	if b.crossed.Arrivals > 0 {
		for j := range b.offered.Arrivals {
			if a := &b.offered.Arrivals[j]; a.Taken && a.Actor != "" {
				i.Arrived = append(i.Arrived, ArrivalInfo{a.Actor, a.From, a.ID})
			}
		}
	}
	i.Arrivals, i.Returns, i.Parked = b.crossed.Arrivals-i.Refused, b.crossed.Returns, b.crossed.Parked
	if n := len(b.batch.Resolutions); n > 0 {
		i.Actions = make([]ActionInfo, 0, n)
		for j := range b.submissions {
			if s := &b.submissions[j]; s.intent.ActionID != "" {
				i.Actions = append(i.Actions, ActionInfo{s.intent.ActionID, b.outcomes[j], s.came})
			}
		}
	}
	if !b.unconfirmed.IsZero() {
		i.Confirming = time.Since(b.unconfirmed)
	}
	return i
}
