// Package shardtest is the contract of shard.Leases as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) {
//		shardtest.Run(t, func(t *testing.T) shardtest.Backend { return newBackend(t) })
//	}
//
// The tests use groups of random names, so that back ends may share servers with other tests. Leases are
// long and aged by Backend.Age, so that no test waits and none depends on how quick the machine is. Random
// ones print their seed; set TILEFENCE_SEED to it to run them again.
package shardtest

import (
	"crypto/rand"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
)

// ttl is how long leases last here: far longer than any test takes.
const ttl = time.Hour

// Backend is a store under test.
type Backend struct {
	Leases shard.Leases

	// Age makes everything in the group's book so much older. It is a whole number of minutes.
	Age func(group string, by time.Duration)

	// Lose removes the group's book.
	Lose func(group string)
}

// Run tests the back end that open opens, once a test.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b *bench)
	}{
		{"OneHoldsAll", oneHoldsAll},
		{"SharesAreFair", sharesAreFair},
		{"NothingIsGrantedBeforeItIsFree", nothingIsGrantedBeforeItIsFree},
		{"TheDeadAreReplaced", theDeadAreReplaced},
		{"AnOutageMovesNothing", anOutageMovesNothing},
		{"AllDead", allDead},
		{"AClockThatGoesBack", aClockThatGoesBack},
		{"ALostBookMovesNothing", aLostBookMovesNothing},
		{"KeptIfNobodyHadItSince", keptIfNobodyHadItSince},
		{"Leaving", leavingHandsOver},
		{"LateRequests", lateRequests},
		{"SameRequestAgain", sameRequestAgain},
		{"RangesMustAgree", rangesMustAgree},
		{"WrongRangesDoNotOutstayTheDead", wrongRangesDoNotOutstayTheDead},
		{"TokensClimb", tokensClimb},
		{"GroupsAreApart", groupsAreApart},
		{"Full", full},
		{"Largest", largest},
		{"Arguments", arguments},
		{"EndedContext", endedContext},
		{"Concurrent", concurrent},
		{"Random", random},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, &bench{Backend: open(t), t: t, group: "test-" + rand.Text()})
		})
	}
}

// bench is a Backend with what tests of it share.
type bench struct {
	Backend
	t     *testing.T
	group string
}

// ranges divides into n shards.
func ranges(t *testing.T, n int) shard.Ranges {
	t.Helper()
	cuts := make([]fence.TileID, n-1)
	for i := range cuts {
		cuts[i] = fence.TileID(i+1) * 1000
	}
	r, err := shard.NewRanges(cuts...)
	require.NoError(t, err)
	return r
}

// member is a holder that does at once what it is told.
type member struct {
	b       *bench
	name    string
	ranges  shard.Ranges
	beat    uint64
	held    []shard.Lease
	release []int
	last    shard.Reply
}

func (b *bench) member(name string, shards int) *member {
	return &member{b: b, name: name, ranges: ranges(b.t, shards)}
}

func (m *member) request(leaving bool) shard.Request {
	m.beat++
	return shard.Request{Group: m.b.group, Holder: m.name, Beat: m.beat, Ranges: m.ranges, TTL: ttl,
		Held: m.held, Release: m.release, Leaving: leaving}
}

// sync is a heartbeat; what is to be given back will be released with the next.
func (m *member) sync() shard.Reply { return m.exchange(false) }

func (m *member) leave() shard.Reply { return m.exchange(true) }

func (m *member) exchange(leaving bool) shard.Reply {
	m.b.t.Helper()
	reply, err := m.b.Leases.Sync(m.b.t.Context(), m.request(leaving))
	require.NoError(m.b.t, err)
	m.take(reply)
	return reply
}

func (m *member) take(reply shard.Reply) {
	m.last, m.held, m.release = reply, nil, nil
	for i, g := range reply.Held {
		if i > 0 {
			require.Greater(m.b.t, g.Shard, reply.Held[i-1].Shard, "ascending")
		}
		if g.GiveBack {
			m.release = append(m.release, g.Shard)
		} else {
			m.held = append(m.held, g.Lease)
		}
	}
}

// all is every shard it holds, to be given back or not.
func (m *member) all() (s []int) {
	for _, g := range m.last.Held {
		s = append(s, g.Shard)
	}
	return s
}

func (m *member) shards() (s []int) {
	for _, l := range m.held {
		s = append(s, l.Shard)
	}
	return s
}

// pass lets time pass, during which the members beat.
func (b *bench) pass(by time.Duration, members ...*member) {
	b.t.Helper()
	for ; by > 0; by -= ttl / 3 {
		b.Age(b.group, min(by, ttl/3))
		for _, m := range members {
			m.sync()
		}
	}
}

// settle lets all members beat until nothing moves any more, and fails if that takes long.
func settle(members ...*member) {
	if len(members) == 0 {
		return
	}
	t := members[0].b.t
	t.Helper()
	for round, quiet := 0, 0; quiet < 2; round++ {
		require.Less(t, round, 20, "shards go round and round")
		before := fmt.Sprint(holdings(members))
		quiet++
		for _, m := range members {
			m.sync()
			if len(m.release) > 0 {
				quiet = 0
			}
		}
		if fmt.Sprint(holdings(members)) != before {
			quiet = 0
		}
	}
}

func holdings(members []*member) (all [][]shard.Lease) {
	for _, m := range members {
		all = append(all, m.held)
	}
	return all
}

// requireShared fails unless the members hold every shard once, and evenly.
func requireShared(t *testing.T, shards int, members ...*member) {
	t.Helper()
	seen := map[int]string{}
	least, most := shards, 0
	for _, m := range members {
		require.Empty(t, m.release)
		for _, s := range m.shards() {
			require.Empty(t, seen[s], "shard %d has two holders", s)
			seen[s] = m.name
		}
		least, most = min(least, len(m.held)), max(most, len(m.held))
	}
	require.Len(t, seen, shards, "every shard has a holder")
	require.LessOrEqual(t, most-least, 1, "evenly")
}
