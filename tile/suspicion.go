package tile

import "time"

// gossipSuspicion is a suspicion that gossip raised and that the follower is looking into. Gossip may be wrong about a
// process that is slow, and a member can make it so by taking the contact of another and dying. An owner that commits
// is alive, whatever gossip says: its owner hash moves. Only if no member is seen to live at its contact either, it is
// cut off from the others, gateways and clients among them, and loses the tile although it lives.
type gossipSuspicion struct {
	suspicion      // silent: how long the owner hash had not moved when it was read last
	looked    bool // it was read after the report came
}

// suspicionResult is the answer to a report.
type suspicionResult int

const (
	undecided suspicionResult = iota
	ownerDead                 // or cut off
	ownerAlive
)

// lifeless is for how long an owner hash must not have moved before its owner is taken for dead on another sign: one
// tick more than an idle owner takes to move it.
func (c *base) lifeless() time.Duration {
	return min(c.cfg.quiet()+c.cfg.TickInterval, c.cfg.SuspectAfter)
}

// cutOffAfter is for how long a report must stand before a living owner is believed to be cut off: long enough for a
// member that was falsely reported dead to say that it lives.
func (f *tileFollower) cutOffAfter() time.Duration { return max(2*f.cfg.TickInterval, time.Second) }

// judge looks at the owner hash that was just read; unread is why it could not be. What the first look finds moved may
// have moved before the owner died; what moves later is alive. There may be no report: nil.
func (f *tileFollower) judge(r *gossipSuspicion, unread error) suspicionResult {
	if r == nil || unread != nil {
		return undecided
	}
	moved := r.looked && f.watch.Silent < r.silent
	r.looked, r.silent = true, f.watch.Silent
	stands, standing := f.inbox.deathReported()
	switch {
	case f.watch.Epoch() != r.of, moved && !standing:
		f.cfg.Logger.Debug("gossip presumes the tile's owner dead, and it is alive", "owner", f.watch.Latest().Contact)
		return ownerAlive
	case f.rests():
	case f.watch.Silent >= f.lifeless():
		return ownerDead
	case standing && stands >= f.cutOffAfter():
		r.cutOff = true
		return ownerDead
	}
	return undecided
}

// judgeAfter is how long it takes at most until a report can be judged.
func (f *tileFollower) judgeAfter() time.Duration {
	after := f.lifeless() - f.watch.Silent
	if stands, standing := f.inbox.deathReported(); standing {
		after = min(after, f.cutOffAfter()-stands)
	}
	return max(after, time.Millisecond)
}
