package overload

import (
	"time"

	"github.com/tilefence/tilefence/internal/fairshare"
)

// entry is a request that waits.
type entry struct {
	Request
	came  time.Time
	start func(error)
}

// line holds the requests of a class. Their holders have turns one after another.
type line struct {
	size    int
	pool    fairshare.Pool[*entry]
	holders []string        // in the order of their turns; of some, all requests may have left
	ordered map[string]bool // those of them
}

func (l *line) add(e *entry) {
	l.size++
	l.pool.Add(e.Holder, e)
	l.order(e.Holder)
}

func (l *line) order(holder string) {
	if l.ordered[holder] {
		return
	}
	if l.ordered == nil {
		l.ordered = map[string]bool{}
	}
	l.ordered[holder] = true
	l.holders = append(l.holders, holder)
}

func (l *line) held(holder string) int { return l.pool.Held(holder) }

// first is the request whose turn it is; nil: none waits.
func (l *line) first() *entry {
	for len(l.holders) > 0 {
		holder := l.holders[0]
		if of := l.pool.Items(holder); len(of) > 0 {
			return of[0]
		}
		l.pop()
	}
	return nil
}

func (l *line) pop() {
	delete(l.ordered, l.holders[0])
	l.holders[0] = ""
	l.holders = l.holders[1:]
}

// next is first, taken out.
func (l *line) next() *entry {
	e := l.first()
	if e == nil {
		return nil
	}
	l.pop()
	l.remove(e)
	if l.held(e.Holder) > 0 {
		l.order(e.Holder)
	}
	return e
}

func (l *line) remove(e *entry) {
	l.pool.Remove(e.Holder, e)
	l.size--
}

// heaviest is the newest request of the holder that has most; nil: none waits.
func (l *line) heaviest() *entry {
	if _, of := l.pool.Heaviest(); len(of) > 0 {
		return of[len(of)-1]
	}
	return nil
}

// dead takes out the requests that are too old.
func (l *line) dead(now time.Time) (dead []*entry) {
	for _, holder := range l.holders {
		for _, e := range l.pool.Items(holder) {
			if e.dead(now) {
				dead = append(dead, e)
			}
		}
	}
	for _, e := range dead {
		l.remove(e)
	}
	return dead
}

// answers are given when no lock is held.
type answers []func()

func (a *answers) add(e *entry, err error) {
	if a != nil {
		*a = append(*a, func() { e.start(err) })
	}
}

func (a answers) give() {
	for _, answer := range a {
		answer()
	}
}
