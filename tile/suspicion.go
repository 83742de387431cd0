package tile

import (
	"time"

	"github.com/tilefence/tilefence/fence"
)

// suspector decides whether a follower suspects the tile's owner.
type suspector struct {
	*base

	failed int       // attempts to take the tile in a row for which no back end that is away was the reason
	rest   time.Time // until then no suspicion of this follower's own leads to another
}

// suspicion is why a follower asks for the tile.
type suspicion struct {
	why    Suspicion
	silent time.Duration
	of     fence.Epoch // the owner's, when it became suspicious
	began  time.Time
	cutOff bool // the owner was alive, and lives apart from all members
}

func (s *suspector) suspect(why Suspicion) suspicion {
	return suspicion{why: why, silent: s.watch.Silent, of: s.watch.Epoch(), began: time.Now()}
}

// rests reports whether the last attempts have failed, so that the next has to wait.
func (s *suspector) rests() bool { return time.Now().Before(s.rest) }

// failedAttempt lets the follower rest after an attempt to take the tile, the longer the more of them have failed.
func (s *suspector) failedAttempt() {
	s.failed++
	s.rest = time.Now().Add(claimBackoff(patientAfter + s.failed))
}

// silent reports whether the tile has, or had, an owner whose owner hash has not moved for SuspectAfter. A follower
// that rests does not say so.
func (s *suspector) silent() bool {
	return !s.rests() && s.watch.Epoch() > 0 && s.watch.Silent >= s.cfg.SuspectAfter
}

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
	ownerUncertain suspicionResult = iota
	ownerDead                      // or cut off
	ownerAlive
)

// cutOffAfter is for how long a report must stand before a living owner is believed to be cut off: long enough for a
// member that was falsely reported dead to say that it lives.
func (s *suspector) cutOffAfter() time.Duration { return max(2*s.cfg.TickInterval, time.Second) }

// judge looks at the owner hash that was just read; unread is why it could not be. What the first look finds moved may
// have moved before the owner died; what moves later is alive. There may be no report: nil.
func (s *suspector) judge(r *gossipSuspicion, unread error) suspicionResult {
	if r == nil || unread != nil {
		return ownerUncertain
	}
	moved := r.looked && s.watch.Silent < r.silent
	r.looked, r.silent = true, s.watch.Silent
	stands, standing := s.inbox.takeOvers.deathReported()
	switch {
	case s.watch.Epoch() != r.of, moved && !standing:
		s.cfg.Logger.Debug("gossip presumes the tile's owner dead, and it is alive", "owner", s.watch.Latest().Contact)
		return ownerAlive
	case s.rests():
	case s.watch.Silent >= s.cfg.lifeless():
		return ownerDead
	case standing && stands >= s.cutOffAfter():
		r.cutOff = true
		return ownerDead
	}
	return ownerUncertain
}

// judgeAfter is how long it takes at most until a report can be judged.
func (s *suspector) judgeAfter() time.Duration {
	after := s.cfg.lifeless() - s.watch.Silent
	if stands, standing := s.inbox.takeOvers.deathReported(); standing {
		after = min(after, s.cutOffAfter()-stands)
	}
	return max(after, time.Millisecond)
}
