package bridge

import "time"

// rhythm is the beat of a tile whose owner commits at regular times, once a tick: it tells when the next
// entry is due, so that the tile need not be read in between.
//
// Entries carry their commit time by the store's clock, so intervals are known however late they were read.
// Ticks without events append nothing: an interval may be a few periods long. After rhythmFits intervals
// that fit, the tile is in rhythm. An entry off the beat is forgiven: owners are late when their machine is
// busy. A second one that is off by as much moves the beat (a takeover, a pause, a step of the store's clock).
// Too many in a row, or every other one, end it, and so do more than rhythmMissed beats without an entry.
//
// What a commit time is by this process's clock is found from the reads: an entry was committed after the last
// read that did not find it, and before the end of the one that did. Within these bounds lead, which is added to
// the expected time, shrinks with each beat that was read in time and grows with each that was read too early.
// About one beat in five is, and lead follows the owner's jitter, the drift of the clocks and the time a read takes,
// without having to tell them apart.
//
// Times of this process are durations since its run began, so that a step of its clock does no harm.
type rhythm struct {
	last    time.Duration // commit time of the last entry, by the store's clock; zero: none yet
	next    time.Duration // when the next is expected to be committed, by the same
	period  time.Duration // zero: unknown
	fits    int           // intervals in a row that were whole periods
	misfits int           // entries since that were off the beat count two, those that were not take one back
	off     time.Duration // by how much the last entry was off the beat; zero if it was not
	missed  int           // beats in a row without an entry

	lead   time.Duration // this process's time less the store's, plus what makes a read find something
	streak int           // beats in a row that were read in time
	early  int           // reads of the present beat that found nothing
	asked  time.Duration // when the last of them began
	empty  time.Duration // when the last read since the last entry began; zero: none
}

const (
	rhythmFits    = 2
	rhythmMisfits = 6
	rhythmMissed  = 4

	minPeriod = 40 * time.Millisecond // shorter ones are as well polled
	maxPeriod = 2 * time.Second       // longer ones are cheap to poll, and their changes would be found late

	// tooEarly and onTime are how much a beat moves lead: their ratio is that of beats read in time to those
	// read too early. When no read is too early for a while, lead is far off, and moves faster and faster.
	tooEarly  = time.Millisecond
	onTime    = tooEarly / 4
	slowBeats = 6
)

// retries are the waits after reads that came too early. After the last the beat has no entry.
var retries = [...]time.Duration{3 * time.Millisecond, 6 * time.Millisecond, 10 * time.Millisecond, 15 * time.Millisecond,
	20 * time.Millisecond, 25 * time.Millisecond, 30 * time.Millisecond}

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
	r.aim(now-at, at, wasDue)
	r.early, r.missed, r.empty = 0, 0, 0
	if behind := now - (r.next + r.lead); r.period > 0 && behind > r.period {
		r.next += behind.Truncate(r.period) // catching up: later beats are read already
	}
}

// aim moves lead after an entry that was committed at at and found late after that.
func (r *rhythm) aim(late, at time.Duration, wasDue bool) {
	switch {
	case r.fits == 0:
		r.lead = late
	case !r.in() || !wasDue:
	case r.early > 0:
		r.streak = 0
		r.lead += tooEarly
	default:
		r.streak++
		r.lead -= onTime << min(max(r.streak-slowBeats, 0), 5)
	}
	if r.empty != 0 {
		r.lead = max(r.lead, r.empty-at) // it was not there yet
	}
	r.lead = min(r.lead, late)
}

// fit compares an interval that ended at at with the period, and expects the next.
func (r *rhythm) fit(interval, at time.Duration) {
	var beats, off time.Duration
	if r.period > 0 {
		whole := interval.Round(r.period)
		beats, off = whole/r.period, interval-whole
	}
	if r.in() {
		// Against what was expected, not against the last one: what delayed that has not moved the beat.
		off = at - r.next
		off -= off.Round(r.period)
	}
	switch {
	case beats < 1 && !r.in() || beats > rhythmMissed+1 || off.Abs() > r.tolerance():
		r.misfit(interval, at, off)
	case r.in():
		r.misfits, r.off = max(0, r.misfits-1), 0
		r.period += off / 16
		r.next = at - off/2 + r.period
	default:
		r.fits++
		r.period += off / (2 * beats)
		r.next = at + r.period
	}
}

// tolerance is how far off the beat an entry may be.
func (r *rhythm) tolerance() time.Duration { return max(15*time.Millisecond, r.period/8) }

// misfit notes an entry that was off the beat.
func (r *rhythm) misfit(interval, at, off time.Duration) {
	if r.in() && interval > 0 && interval < 2*rhythmMissed*r.period && r.misfits < rhythmMisfits {
		r.misfits += 2
		r.next += (at - r.next).Round(r.period) + r.period
		if r.off != 0 && (off-r.off).Abs() <= r.tolerance() {
			r.next, off = at+r.period, 0
		}
		r.off = off
		return
	}
	*r = rhythm{last: at}
	if interval >= minPeriod && interval <= maxPeriod {
		r.period, r.next = interval, at+interval
	}
}

// nothing notes that a read that began at began has found no entry.
func (r *rhythm) nothing(began time.Duration) {
	r.empty = began
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

// shaky reports whether the last beat was not as expected.
func (r *rhythm) shaky() bool { return r.missed > 0 || r.misfits > 0 }

// skip gives up waiting for the present beat's entry.
func (r *rhythm) skip() {
	r.early = 0
	r.next += r.period
	if r.missed++; r.missed > rhythmMissed {
		*r = rhythm{}
	}
}
