package bridge

import (
	"math"
	"time"
)

// rhythm is the beat of a tile whose owner commits at regular times, once a tick: it tells when the next
// entry is due, so that the tile need not be read in between.
//
// Entries carry their commit time by the store's clock, so intervals are known however late they were read.
// Ticks without events append nothing: an interval may be a few periods long. After rhythmFits intervals
// that fit, the tile is in rhythm. Two in a row that do not fit end it, and so do rhythmMissed beats in a row
// without an entry; it is learnt anew then. A step of the store's clock, a takeover or a change of rate are
// intervals that do not fit.
//
// What a commit time is by this process's clock is not measured but found: lead, which is added to it, is never
// more than in the entry read soonest after its commit; it shrinks with each beat that was read in time and
// grows with each that was read too early. About one beat in five is, and lead follows the owner's jitter,
// the drift of the clocks and the time a read takes, without having to tell them apart.
//
// Times of this process are durations since its run began, so that a step of its clock does no harm.
type rhythm struct {
	last    time.Duration // commit time of the last entry, by the store's clock; zero: none yet
	next    time.Duration // when the next is expected to be committed, by the same
	period  time.Duration // zero: unknown
	fits    int           // intervals in a row that were whole periods
	misfits int           // in a row since that were not
	missed  int           // beats in a row without an entry

	lead   time.Duration // this process's time less the store's, plus what makes a read find something
	streak int           // beats in a row that were read in time
	early  int           // reads of the present beat that found nothing
	asked  time.Duration // when the last of them began
}

const (
	rhythmFits   = 2
	rhythmMissed = 4

	minPeriod = 40 * time.Millisecond // shorter ones are as well polled
	maxPeriod = 2 * time.Second       // longer ones are cheap to poll, and their changes would be found late

	// tooEarly and onTime are how much a beat moves lead: their ratio is that of beats read in time to those
	// read too early. When no read is too early for a while, lead is far off, and moves faster and faster.
	tooEarly  = time.Millisecond
	onTime    = tooEarly / 4
	slowBeats = 6
)

// retries are the waits after reads that came too early. After the last the beat has no entry.
var retries = [...]time.Duration{3 * time.Millisecond, 6 * time.Millisecond, 10 * time.Millisecond, 10 * time.Millisecond}

// in reports whether the tile is in rhythm.
func (r *rhythm) in() bool { return r.fits >= rhythmFits }

// due is when the next entry is to be read. Only in rhythm.
func (r *rhythm) due() time.Duration {
	if r.early > 0 {
		return r.asked + retries[r.early-1]
	}
	return r.next + r.lead
}

// found notes an entry by its commit time in milliseconds since 1970. It was read by now, because it was due or
// for another reason.
func (r *rhythm) found(committed int64, now time.Duration, wasDue bool) {
	at := time.Duration(committed) * time.Millisecond
	interval, first := at-r.last, r.last == 0
	r.last = at
	if !first {
		r.fit(interval, at)
	}
	r.lead = r.aim(now-at, at, wasDue)
	r.early, r.missed = 0, 0
	if behind := now - (r.next + r.lead); r.period > 0 && behind > r.period {
		r.next += behind / r.period * r.period // catching up: later beats are read already
	}
}

// aim is the new lead after an entry that was committed at at and read late after that.
func (r *rhythm) aim(late, at time.Duration, wasDue bool) time.Duration {
	switch {
	case r.fits == 0:
		return late
	case !r.in() || !wasDue:
		return min(r.lead, late)
	case r.early > 0:
		r.streak = 0
		return min(max(r.lead+tooEarly, r.asked-at), late) // it was not there yet when last asked
	}
	r.streak++
	return min(r.lead-onTime<<min(max(r.streak-slowBeats, 0), 5), late)
}

// fit compares an interval that ended at at with the period, and expects the next.
func (r *rhythm) fit(interval, at time.Duration) {
	var beats, off time.Duration
	if r.period > 0 {
		beats = time.Duration(math.Round(float64(interval) / float64(r.period)))
		off = interval - beats*r.period
	}
	if r.in() {
		// Against what was expected, not against the last one: what delayed that has not moved the beat.
		off = at - r.next
		off -= time.Duration(math.Round(float64(off)/float64(r.period))) * r.period
	}
	switch {
	case beats < 1 || beats > rhythmMissed+1 || off.Abs() > max(15*time.Millisecond, r.period/16):
		r.misfit(interval, at)
	case r.in():
		r.misfits = 0
		r.period += off / (16 * beats)
		r.next = at - off/2 + r.period
	default:
		r.fits++
		r.period += off / (2 * beats)
		r.next = at + r.period
	}
}

// misfit forgives one interval that does not fit, and learns anew after another.
func (r *rhythm) misfit(interval, at time.Duration) {
	if r.in() && r.misfits == 0 && interval > 0 && interval < rhythmMissed*r.period {
		r.misfits++
		r.next += time.Duration(math.Round(float64(at-r.next)/float64(r.period))+1) * r.period
		return
	}
	*r = rhythm{last: at}
	if interval >= minPeriod && interval <= maxPeriod {
		r.period, r.next = interval, at+interval
	}
}

// nothing notes that a read that began at began has found no entry.
func (r *rhythm) nothing(began time.Duration) {
	if !r.in() || began < r.due() {
		return
	}
	if r.early < len(retries) {
		r.asked = began
		r.early++
		return
	}
	r.skip()
}

// skip gives up waiting for the present beat's entry.
func (r *rhythm) skip() {
	r.early = 0
	r.next += r.period
	if r.missed++; r.missed > rhythmMissed {
		*r = rhythm{}
	}
}
