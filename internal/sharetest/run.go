// Package sharetest is the contract of share.Members as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { sharetest.Run(t, newBackend) }
//
// The tests use groups of random names, so that back ends may share servers with other tests. The TTL is an hour and
// lists are aged by Backend.Age, so that no test waits and none depends on how fast the machine is.
package sharetest

import (
	"context"
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/share"
)

const ttl = time.Hour

// Backend is a store under test.
type Backend struct {
	Members share.Members
	Age     func(group string, by time.Duration) // steps the clock that judges the group forward, or back if negative
	Lose    func(group string)                   // removes the group's list
}

// list is one group of a Backend.
type list struct {
	Backend
	t     *testing.T
	group string
}

// beat fails unless the list then has exactly the members want, and knew the first one as it says.
func (l *list) beat(known bool, want ...string) {
	l.t.Helper()
	living, was, err := l.Members.Beat(l.t.Context(), l.group, want[0], ttl)
	require.NoError(l.t, err)
	require.ElementsMatch(l.t, want, living)
	require.IsNonDecreasing(l.t, living)
	require.Equal(l.t, known, was)
}

// Run tests the back end that open opens, once a test.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	test := func(name string, run func(l *list)) {
		t.Run(name, func(t *testing.T) { run(&list{Backend: open(t), t: t, group: "test-" + rand.Text()}) })
	}
	test("TheDeadAreRemoved", func(l *list) {
		l.beat(false, "one")
		l.beat(false, "two", "one")
		for range 3 {
			l.Age(l.group, ttl/2)
			l.beat(true, "two", "one")
			l.beat(true, "one", "two")
		}
		l.Age(l.group, ttl/2)
		l.beat(true, "one", "two")
		l.Age(l.group, ttl/2+time.Minute)
		l.beat(true, "one")
		l.beat(false, "two", "one")
	})
	test("Leave", func(l *list) {
		l.beat(false, "one")
		l.beat(false, "two", "one")
		for range 2 {
			require.NoError(l.t, l.Members.Leave(l.t.Context(), l.group, "one"))
		}
		l.beat(true, "two")
		l.beat(false, "one", "two")
		require.NoError(l.t, l.Members.Leave(l.t.Context(), "test-"+rand.Text(), "one"))
	})
	test("SilenceOfAll", func(l *list) {
		l.beat(false, "one")
		l.beat(false, "two", "one")
		l.Age(l.group, 2*ttl)
		l.beat(false, "two")
		l.beat(false, "one", "two")
	})
	test("LostList", func(l *list) {
		l.beat(false, "one")
		l.beat(false, "two", "one")
		l.Lose(l.group)
		l.beat(false, "one")
		l.beat(false, "two", "one")
	})
	test("ClockSteppedBack", func(l *list) {
		l.beat(false, "one")
		l.beat(false, "two", "one")
		l.Age(l.group, -100*ttl)
		l.beat(true, "one", "two")
		l.Age(l.group, ttl/2)
		l.beat(true, "one", "two")
		l.Age(l.group, ttl/2+time.Minute)
		l.beat(true, "one") // two died before or after the step, and stayed for no more than one TTL
	})
	test("GroupsAreApart", func(l *list) {
		l.beat(false, "one")
		other := *l
		other.group += "-other"
		other.beat(false, "two ☃ {}")
		l.beat(true, "one")
	})
	test("EndedContext", func(l *list) {
		ctx, cancel := context.WithCancel(l.t.Context())
		cancel()
		_, _, err := l.Members.Beat(ctx, l.group, "one", ttl)
		require.ErrorIs(l.t, err, context.Canceled)
		require.ErrorIs(l.t, err, fence.ErrUnknownOutcome)
		l.beat(false, "two")
	})
	test("Concurrent", func(l *list) {
		var g errgroup.Group
		names := make([]string, 64)
		for i := range names {
			names[i] = fmt.Sprint("member", i)
			g.Go(func() (err error) {
				for n := 0; n < 5 && err == nil; n++ {
					_, _, err = l.Members.Beat(l.t.Context(), l.group, names[i], ttl)
				}
				return err
			})
		}
		require.NoError(l.t, g.Wait())
		l.beat(true, names...)
	})
}
