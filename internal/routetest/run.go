// Package routetest is the suite that every route.Membership passes.
//
//	func TestConformance(t *testing.T) {
//		routetest.Run(t, func(t *testing.T) routetest.Network { return newNetwork(t) })
//	}
//
// It runs a few members at a time, each with a table of its own, and waits for what must become true; how
// soon is not its concern, as long as it is within Patience. It ends the members it has run.
package routetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// Patience is how long the suite waits for anything before it fails.
const Patience = time.Minute

// Network makes members that can reach each other.
type Network interface {
	// Member prepares one more member, which the suite runs before it asks for the next. kill makes the
	// member silent, as the death of its process would: nothing it does afterwards reaches another member. The suite
	// ends its Run after that.
	Member(t *testing.T, contact string, table *route.Table, notify func(route.Event)) (m route.Membership, kill func())
}

// Run runs the suite. newNetwork is called once for each test.
func Run(t *testing.T, newNetwork func(t *testing.T) Network) {
	for _, test := range []struct {
		name string
		run  func(*scene)
	}{
		{"members know each other", membersKnowEachOther},
		{"announcements arrive", announcementsArrive},
		{"announced before Run", announcedBeforeRun},
		{"the highest epoch wins", theHighestEpochWins},
		{"tables become equal", tablesBecomeEqual},
		{"malformed announcements", malformedAnnouncements},
		{"loads arrive", loadsArrive},
		{"a death", aDeath},
		{"a departure", aDeparture},
		{"another life", anotherLife},
		{"events wait for notify", eventsWaitForNotify},
		{"Run is called once", runIsCalledOnce},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := &scene{t: t, network: newNetwork(t)}
			defer s.end()
			test.run(s)
		})
	}
}

// scene is a test and the members it has run.
type scene struct {
	t       *testing.T
	network Network
	all     []*process
}

// process is a member that is running.
type process struct {
	route.Membership
	table   *route.Table
	contact string
	silence func()
	stop    context.CancelFunc
	ended   chan error

	mu     sync.Mutex
	events []route.Event
	busy   atomic.Bool // notify is being called
	hold   func()      // called by notify
}

// prepare makes a member that does not run yet.
func (s *scene) prepare(contact string) *process {
	s.t.Helper()
	p := &process{table: new(route.Table), contact: contact, ended: make(chan error, 1), hold: func() {}}
	p.Membership, p.silence = s.network.Member(s.t, contact, p.table, func(e route.Event) {
		assert.False(s.t, p.busy.Swap(true), "notify is called for one event after the other")
		p.hold()
		p.mu.Lock()
		p.events = append(p.events, e)
		p.mu.Unlock()
		p.busy.Store(false)
	})
	return p
}

func (s *scene) run(p *process) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	s.all = append(s.all, p)
	go func() { p.ended <- p.Run(ctx) }()
}

// start runs a member and waits until it and every living member know each other.
func (s *scene) start(contact string) *process {
	s.t.Helper()
	p := s.prepare(contact)
	s.run(p)
	s.settle()
	return p
}

// settle waits until all members know the same members.
func (s *scene) settle() {
	s.t.Helper()
	for _, p := range s.all {
		s.until(func() bool { return len(p.Members()) == len(s.all) }, "%s does not know all members", p.contact)
	}
}

// leave ends a member with a farewell.
func (s *scene) leave(p *process) {
	s.t.Helper()
	p.stop()
	select {
	case err := <-p.ended:
		require.NoError(s.t, err)
	case <-time.After(Patience):
		s.t.Fatalf("Run of %s does not end", p.contact)
	}
	for i, other := range s.all {
		if other == p {
			s.all = append(s.all[:i:i], s.all[i+1:]...)
		}
	}
}

// kill ends a member without one.
func (s *scene) kill(p *process) {
	s.t.Helper()
	p.silence()
	s.leave(p)
}

func (s *scene) end() {
	for len(s.all) > 0 {
		s.leave(s.all[len(s.all)-1])
	}
}

// until waits for a condition.
func (s *scene) until(ok func() bool, format string, args ...any) {
	s.t.Helper()
	waittest.Until(s.t, ok, Patience, 5*time.Millisecond, append([]any{format}, args...)...)
}

// learns waits until a process's table has an entry.
func (s *scene) learns(p *process, want route.Entry) {
	s.t.Helper()
	s.until(func() bool {
		got, _ := p.table.Lookup(want.Tile)
		return got == want
	}, "%s does not learn %v", p.contact, want)
}

// of returns the events of one contact, so far.
func (p *process) of(contact string) []route.Event {
	p.mu.Lock()
	defer p.mu.Unlock()
	var of []route.Event
	for _, e := range p.events {
		if e.Member.Contact == contact {
			of = append(of, e)
		}
	}
	return of
}

// kinds returns the kinds of the events of one contact, so far.
func (p *process) kinds(contact string) []route.EventKind {
	var kinds []route.EventKind
	for _, e := range p.of(contact) {
		kinds = append(kinds, e.Kind)
	}
	return kinds
}
