package bridge

import (
	"math/rand/v2"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// marks is where a tile's two watermarks stand. Both always say the same: everything at or below them is published.
type marks struct {
	writing  bool
	saved    fence.Seq // what they say
	rewind   bool      // they may be too high: the history regressed
	rewound  fence.Seq // where it ended then
	lost     fence.Seq // entries below it were trimmed unread, which was reported
	savedAt  time.Time // zero: never by this bridge, so that a lease is due
	renew    time.Time // when to write them even if they say the same
	failures int
	retry    time.Time
}

// settled reports whether the watermarks say what they should.
func (m *marks) settled(read fence.Seq) bool { return !m.rewind && m.saved >= read }

// due is when the watermarks of a tile that was read up to read are to be written next.
func (m *marks) due(read fence.Seq, last bool, c *Config) time.Time {
	switch {
	case m.failures > 0:
		return m.retry
	case last || m.rewind:
		return time.Time{}
	case m.settled(read):
		return m.renew
	}
	return m.savedAt.Add(c.MarkEvery)
}

// book notes the outcome of a write.
func (m *marks) book(w *mark, now time.Time, c *Config) {
	m.writing = false
	if w.err != nil {
		m.rewind = m.rewind || w.rewind
		m.failures++
		m.retry = now.Add(wait.Backoff(c.tuning.RetryMin, c.tuning.RetryMax, m.failures))
		return
	}
	if w.rewind || w.seq > m.saved {
		m.saved = w.seq
	}
	m.savedAt, m.failures = now, 0
	m.renew = now.Add(spread(c.tuning.RenewEvery))
}

// spread is a time between three quarters of d and d, so that what began together does not stay together.
func spread(d time.Duration) time.Duration { return d - rand.N(d/4+1) }
