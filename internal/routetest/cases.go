package routetest

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/seed"
)

func membersKnowEachOther(s *scene) {
	a, b, c := s.start("a:1"), s.start("b:1"), s.start("c:1")
	for _, p := range s.all {
		var contacts []string
		for _, m := range p.Members() {
			contacts = append(contacts, m.Contact)
			assert.NotEmpty(s.t, m.Name)
		}
		assert.Equal(s.t, []string{"a:1", "b:1", "c:1"}, contacts)
		assert.Equal(s.t, a.Members(), p.Members(), "all know a member by the same name")
	}
	for _, p := range []*process{a, b, c} {
		for _, other := range []string{"a:1", "b:1", "c:1"} {
			if other == p.contact {
				assert.Empty(s.t, p.of(other), "no events of oneself")
				continue
			}
			s.until(func() bool { return len(p.of(other)) > 0 }, "%s is not notified of %s", p.contact, other)
			assert.Equal(s.t, []route.EventKind{route.Joined}, p.kinds(other))
			assert.Contains(s.t, p.Members(), p.of(other)[0].Member)
		}
	}
}

func announcementsArrive(s *scene) {
	a, b := s.start("a:1"), s.start("b:1")
	first := route.Entry{Tile: 1, Epoch: 3, Contact: "a:1"}
	require.NoError(s.t, a.Announce(first))
	got, _ := a.table.Lookup(1)
	require.Equal(s.t, first, got, "one's own table knows at once")
	s.learns(b, first)

	var many []route.Entry
	for i := range fence.TileID(2000) {
		many = append(many, route.Entry{Tile: 0x8500000fffffff | (i+1)<<28, Epoch: 1, Contact: "b:1"})
	}
	require.NoError(s.t, b.Announce(many...))
	require.NoError(s.t, b.Announce())
	late := s.start("c:1")
	for _, p := range []*process{a, late} {
		s.until(func() bool { return p.table.Stats().Known == 2001 }, "%s does not learn everything", p.contact)
		assert.Equal(s.t, b.table.Snapshot(), p.table.Snapshot())
	}
}

func announcedBeforeRun(s *scene) {
	a, b := s.start("a:1"), s.prepare("b:1")
	early := route.Entry{Tile: 1, Epoch: 1, Contact: "b:1"}
	require.NoError(s.t, b.Announce(early))
	assert.Empty(s.t, b.Members())
	s.run(b)
	s.settle()
	s.learns(a, early)
}

// theHighestEpochWins: also when the one that was superseded says so itself, and when old news come late.
func theHighestEpochWins(s *scene) {
	a, b, c := s.start("a:1"), s.start("b:1"), s.start("c:1")
	everywhere := func(want route.Entry) {
		s.t.Helper()
		for _, p := range s.all {
			s.learns(p, want)
		}
	}
	old, now := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}, route.Entry{Tile: 1, Epoch: 2, Contact: "b:1"}
	require.NoError(s.t, a.Announce(old))
	everywhere(old)
	require.NoError(s.t, a.Announce(now)) // it was refused at a write and learned the owner
	everywhere(now)
	require.NoError(s.t, c.Announce(old))
	released := route.Entry{Tile: 1, Epoch: 2}
	require.NoError(s.t, b.Announce(released))
	everywhere(released)
	require.NoError(s.t, c.Announce(now))
	again := route.Entry{Tile: 1, Epoch: 3, Contact: "c:1"}
	require.NoError(s.t, c.Announce(released, again, old))
	everywhere(again)
}

// tablesBecomeEqual announces at random from everywhere at once.
func tablesBecomeEqual(s *scene) {
	for _, contact := range []string{"a:1", "b:1", "c:1"} {
		s.start(contact)
	}
	source := seed.Of(s.t)
	want := new(route.Table)
	var announcing sync.WaitGroup
	for i, p := range s.all {
		random := rand.New(rand.NewPCG(source, uint64(i)))
		announcing.Go(func() {
			for range 300 {
				e := route.Entry{Tile: fence.TileID(1 + random.IntN(40)), Epoch: fence.Epoch(1 + random.IntN(20))}
				e.Contact = []string{"", "a:1", "b:1", "c:1"}[random.IntN(4)]
				want.Learn(e)
				assert.NoError(s.t, p.Announce(e))
			}
		})
	}
	announcing.Wait()
	for _, p := range s.all {
		s.until(func() bool {
			return slices.Equal(want.Snapshot(), p.table.Snapshot())
		}, "%s does not converge", p.contact)
	}
}

func malformedAnnouncements(s *scene) {
	a := s.start("a:1")
	good := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}
	for _, bad := range []route.Entry{{}, {Tile: 1, Contact: "a:1"}, {Epoch: 1, Contact: "a:1"},
		{Tile: 1, Epoch: fence.MaxNumber + 1}} {
		require.ErrorIs(s.t, a.Announce(good, bad), fence.ErrInvalidArgument)
	}
	assert.Empty(s.t, a.table.Snapshot(), "all of an announcement, or nothing")
}

// loadsArrive: what a member has announced last is there, also if that was before it ran; a load that cannot be is
// refused, and the one before it stands.
func loadsArrive(s *scene) {
	early := s.prepare("a:1")
	require.NoError(s.t, early.AnnounceLoad(route.Load{Tiles: 3, Work: time.Millisecond}))
	s.run(early)
	late := s.start("b:1")
	of := func(p *process, contact string) route.Load {
		for _, m := range p.Members() {
			if m.Contact == contact {
				return m.Load
			}
		}
		return route.Load{Tiles: -1}
	}
	for _, now := range []route.Load{{Tiles: 3, Work: time.Millisecond}, {Tiles: 40, Work: 7 * time.Second}, {}} {
		require.NoError(s.t, early.AnnounceLoad(now))
		for _, bad := range []route.Load{{Tiles: -1}, {Work: -1}, {Tiles: 1 << 40}, {Work: 1 << 62}} {
			require.ErrorIs(s.t, early.AnnounceLoad(bad), fence.ErrInvalidArgument)
		}
		s.until(func() bool { return of(late, "a:1") == now && of(early, "a:1") == now }, "load %v", now)
	}
	require.Zero(s.t, of(late, "b:1"))
}

func aDeath(s *scene) {
	a, b, c := s.start("a:1"), s.start("b:1"), s.start("c:1")
	s.kill(c)
	for _, p := range []*process{a, b} {
		s.until(func() bool { return len(p.of("c:1")) == 2 }, "%s is not notified of the death", p.contact)
		assert.Equal(s.t, []route.EventKind{route.Joined, route.Died}, p.kinds("c:1"))
		assert.Equal(s.t, p.of("c:1")[0].Member, p.of("c:1")[1].Member)
		assert.Len(s.t, p.Members(), 2)
	}
	e := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}
	require.NoError(s.t, a.Announce(e))
	s.learns(b, e)
	_, known := c.table.Lookup(1)
	assert.False(s.t, known)
}

func aDeparture(s *scene) {
	a, b, c := s.start("a:1"), s.start("b:1"), s.start("c:1")
	s.leave(c)
	for _, p := range []*process{a, b} {
		s.until(func() bool { return len(p.of("c:1")) == 2 }, "%s is not notified of the departure", p.contact)
		assert.Equal(s.t, []route.EventKind{route.Joined, route.Left}, p.kinds("c:1"))
		assert.Len(s.t, p.Members(), 2)
	}
	assert.Empty(s.t, c.Members())
}

// anotherLife: a process that was started again is another member of the same contact.
func anotherLife(s *scene) {
	a, b := s.start("a:1"), s.start("b:1")
	e := route.Entry{Tile: 1, Epoch: 1, Contact: "b:1"}
	require.NoError(s.t, b.Announce(e))
	s.learns(a, e)
	s.kill(b)
	again := s.prepare("b:1")
	s.run(again)
	s.until(func() bool { return len(a.of("b:1")) == 3 }, "not notified of the second life")
	s.settle()
	s.learns(again, e)
	events := a.of("b:1")
	assert.ElementsMatch(s.t, []route.EventKind{route.Joined, route.Died, route.Joined}, a.kinds("b:1"))
	names := map[string]int{}
	for _, event := range events {
		names[event.Member.Name]++
	}
	assert.Len(s.t, names, 2)
	assert.Equal(s.t, 2, names[events[0].Member.Name])
}

// eventsWaitForNotify: and nothing else does.
func eventsWaitForNotify(s *scene) {
	a := s.prepare("a:1")
	slow := make(chan struct{})
	a.hold = func() { <-slow }
	s.run(a)
	b := s.start("b:1")
	c := s.start("c:1")
	e := route.Entry{Tile: 1, Epoch: 1, Contact: "c:1"}
	require.NoError(s.t, c.Announce(e))
	s.learns(a, e)
	s.leave(c)
	s.until(func() bool { return len(a.Members()) == 2 }, "members do not wait for events")
	e.Epoch = 2
	require.NoError(s.t, a.Announce(e))
	s.learns(b, e)
	assert.Empty(s.t, a.of("c:1"))
	close(slow)
	s.until(func() bool { return len(a.of("c:1")) == 2 }, "events were lost")
	assert.Equal(s.t, []route.EventKind{route.Joined, route.Left}, a.kinds("c:1"))
}

func runIsCalledOnce(s *scene) {
	a := s.start("a:1")
	require.Error(s.t, a.Run(context.Background()))
	s.leave(a)
	require.Error(s.t, a.Run(context.Background()))
}
