package shardtest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/shard"
)

func oneHoldsAll(t *testing.T, b *bench) {
	for _, shards := range []int{1, 2, 16} {
		m := b.member("one", shards)
		b.group += "x"
		reply := m.sync()
		requireShared(t, shards, m)
		require.Equal(t, 1, reply.Holders)
		require.Equal(t, shards, reply.Share)
		require.Zero(t, reply.Free)
		require.Equal(t, reply, m.sync(), "and keeps it")
	}
}

// sharesAreFair: whoever comes gets a share, to the shard, and what has been shared out stays where it is.
func sharesAreFair(t *testing.T, b *bench) {
	for _, shards := range []int{1, 3, 4, 10, 64} {
		b.group += "x"
		var members []*member
		for n := range 7 {
			members = append(members, b.member(fmt.Sprint("m", n), shards))
			settle(members...)
			requireShared(t, shards, members...)
			before := holdings(members)
			settle(members...)
			require.Equal(t, before, holdings(members), "nothing moves without a reason")
		}
	}
}

// nothingIsGrantedBeforeItIsFree: a shard that is to be given back is its holder's until it says that it
// has let go of it, or its lease runs out.
func nothingIsGrantedBeforeItIsFree(t *testing.T, b *bench) {
	one, two := b.member("one", 4), b.member("two", 4)
	one.sync()
	reply := two.sync()
	require.Empty(t, two.held)
	require.Equal(t, 2, reply.Share)
	one.sync()
	require.Len(t, one.release, 2, "asked for what is above its share")
	asked := one.release
	for range 5 {
		two.sync()
		require.Empty(t, two.held, "it has not let go")
		r := one.request(false)
		r.Release = nil // it is still at it
		reply, err := b.Leases.Sync(t.Context(), r)
		require.NoError(t, err)
		one.take(reply)
		require.Equal(t, asked, one.release, "it is reminded, and asked for no more")
	}
	one.sync() // now it has
	two.sync()
	require.ElementsMatch(t, asked, two.shards())
	requireShared(t, 4, one, two)
}

// theDeadAreReplaced: what was not heard for its TTL holds nothing, by the store's clock.
func theDeadAreReplaced(t *testing.T, b *bench) {
	one, two, three := b.member("one", 8), b.member("two", 8), b.member("three", 8)
	settle(one, two, three)
	b.pass(ttl-time.Minute, one, two)
	require.Len(t, append(one.shards(), two.shards()...), 8-len(three.held), "its lease still lasts")
	b.pass(2*time.Minute, one, two)
	requireShared(t, 8, one, two)
	three.sync()
	require.Empty(t, three.held, "it is told that it has lost everything")
	settle(one, two, three)
	requireShared(t, 8, one, two, three)
}

// anOutageMovesNothing: if nobody was heard it was the store that was away, and all find their shards as
// they left them.
func anOutageMovesNothing(t *testing.T, b *bench) {
	members := []*member{b.member("one", 9), b.member("two", 9), b.member("three", 9)}
	settle(members...)
	before := holdings(members)
	b.Age(b.group, 50*ttl)
	for range 3 {
		for _, m := range members {
			m.sync()
			require.Empty(t, m.release)
		}
		require.Equal(t, before, holdings(members))
		b.Age(b.group, ttl-time.Minute)
	}
	for _, m := range members { // one that ends before all leases have run out
		m.sync()
		b.Age(b.group, ttl/4)
	}
	b.Age(b.group, ttl*3/4)
	for _, m := range members {
		b.Age(b.group, ttl/4)
		m.sync()
	}
	require.Equal(t, before, holdings(members))
}

// aClockThatGoesBack: the clock of the store is put back, or another node with a slower one takes over. Leases last no
// longer for it, and none is lost.
func aClockThatGoesBack(t *testing.T, b *bench) {
	one, two, three := b.member("one", 8), b.member("two", 8), b.member("three", 8)
	settle(one, two, three)
	before := holdings([]*member{one, two})
	b.Age(b.group, -50*ttl)
	one.sync()
	two.sync()
	require.Equal(t, before, holdings([]*member{one, two}))
	b.pass(ttl-time.Minute, one, two)
	require.Len(t, append(one.shards(), two.shards()...), 8-len(three.held), "its lease still lasts")
	b.pass(2*time.Minute, one, two)
	requireShared(t, 8, one, two)

	// So it is with the time in which nothing is granted, and when it is a stranger that notices.
	b.Lose(b.group)
	one.sync()
	b.Age(b.group, -50*ttl)
	_, err := b.Leases.Sync(t.Context(), b.member("stranger", 3).request(false))
	require.ErrorAs(t, err, new(*shard.RangesError))
	b.pass(ttl+time.Minute, one)
	requireShared(t, 8, one)
}

// allDead: whoever comes after all have died waits for one more TTL, not for ever.
func allDead(t *testing.T, b *bench) {
	settle(b.member("one", 6), b.member("two", 6))
	b.Age(b.group, 10*ttl)
	heir := b.member("heir", 6)
	heir.sync()
	require.Empty(t, heir.held, "it could be an outage")
	b.Age(b.group, ttl-time.Minute)
	heir.sync()
	require.Empty(t, heir.held)
	b.Age(b.group, 2*time.Minute)
	settle(heir)
	requireShared(t, 6, heir)
}

// aLostBookMovesNothing: holders tell an empty store what they hold.
func aLostBookMovesNothing(t *testing.T, b *bench) {
	members := []*member{b.member("one", 9), b.member("two", 9), b.member("three", 9)}
	dead := b.member("dead", 9)
	settle(append(members, dead)...)
	lost := len(dead.held)
	before := holdings(members)
	b.Lose(b.group)
	for range 2 {
		for _, m := range members {
			m.sync()
		}
	}
	require.Equal(t, before, holdings(members), "under the same tokens")
	require.Equal(t, lost, members[0].last.Free, "what nobody speaks for is not granted yet")
	b.Age(b.group, ttl+time.Minute) // all at once are heard late, which is forgiven
	settle(members...)
	requireShared(t, 9, members...)
	highest := shard.Token(0)
	for _, held := range before {
		for _, l := range held {
			highest = max(highest, l.Token)
		}
	}
	for i, m := range members {
		for _, l := range m.held {
			if !slices.Contains(before[i], l) {
				require.Greater(t, l.Token, highest, "tokens climb on")
			}
		}
	}
}

// keptIfNobodyHadItSince: a holder that was struck off keeps what is still free, and nothing else.
func keptIfNobodyHadItSince(t *testing.T, b *bench) {
	one, two := b.member("one", 8), b.member("two", 8)
	settle(one, two)
	mine := one.held
	b.pass(ttl-time.Minute, two)
	b.Age(b.group, 2*time.Minute)
	one.sync() // too late, but before anybody else
	require.Equal(t, mine, one.held, "under the same tokens")
	two.sync()
	requireShared(t, 8, one, two)

	b.pass(ttl+time.Minute, two)
	settle(two)
	requireShared(t, 8, two)
	one.sync()
	require.Empty(t, one.held, "another has them now")
	settle(one, two)
	requireShared(t, 8, one, two)

	mine = one.held
	b.pass(ttl+time.Minute, two)
	settle(two)
	requireShared(t, 8, two)
	two.leave()
	two.leave()
	one.sync()
	requireShared(t, 8, one)
	for _, l := range mine {
		require.NotContains(t, one.held, l, "it is free, but another had it")
	}
}

// leavingHandsOver: who leaves takes no more, keeps what it has not released, and at its last release is
// replaced at once.
func leavingHandsOver(t *testing.T, b *bench) {
	one, two, three := b.member("one", 9), b.member("two", 9), b.member("three", 9)
	settle(one, two, three)
	reply := three.leave()
	require.Equal(t, 2, reply.Holders)
	require.Zero(t, reply.Share)
	require.Len(t, three.release, 3, "it is to give back all")
	one.sync()
	two.sync()
	require.Len(t, append(one.shards(), two.shards()...), 6, "what it has not released is its own")
	last := three.release[0]
	three.release = three.release[1:]
	three.held = []shard.Lease{reply.Held[0].Lease}
	three.leave()
	require.Equal(t, []int{last}, three.release)
	one.sync()
	two.sync()
	require.Len(t, append(one.shards(), two.shards()...), 8, "what it has released is granted with the next heartbeat")
	three.leave()
	require.Empty(t, three.last.Held)
	settle(one, two)
	requireShared(t, 9, one, two)
	require.Equal(t, 2, one.last.Holders)
}

// lateRequests: a request that was overtaken changes nothing, also after its sender has left.
func lateRequests(t *testing.T, b *bench) {
	one, two := b.member("one", 4), b.member("two", 4)
	overtaken := one.request(false)
	settle(one)
	one.leave()
	one.leave()
	require.Empty(t, one.last.Held)
	_, err := b.Leases.Sync(t.Context(), overtaken)
	require.ErrorIs(t, err, shard.ErrLate)
	two.sync()
	requireShared(t, 4, two)
	require.Equal(t, 1, two.last.Holders)

	overtaken = two.request(false)
	overtaken.Held = two.held
	two.leave() // asked for all
	two.leave() // released all
	_, err = b.Leases.Sync(t.Context(), overtaken)
	require.ErrorIs(t, err, shard.ErrLate)
	three := b.member("three", 4)
	three.sync()
	requireShared(t, 4, three)
}

func sameRequestAgain(t *testing.T, b *bench) {
	one, two := b.member("one", 5), b.member("two", 5)
	settle(one)
	two.sync()
	one.sync()
	r := one.request(false) // with releases
	first, err := b.Leases.Sync(t.Context(), r)
	require.NoError(t, err)
	again, err := b.Leases.Sync(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, first, again)
	two.sync()
	again, err = b.Leases.Sync(t.Context(), r)
	require.NoError(t, err)
	one.take(again)
	requireShared(t, 5, one, two)
}

// rangesMustAgree: whoever cuts elsewhere is refused as long as somebody is there.
func rangesMustAgree(t *testing.T, b *bench) {
	one, other := b.member("one", 4), b.member("other", 5)
	settle(one)
	_, err := b.Leases.Sync(t.Context(), other.request(false))
	var refused *shard.RangesError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, shard.RangesError{Group: b.group, Holder: "other", Digest: other.ranges.Digest(), Shards: 5,
		Current: one.ranges.Digest(), CurrentShards: 4}, *refused)
	settle(one)
	requireShared(t, 4, one)
	require.Equal(t, 1, one.last.Holders, "it left no trace")
	highest := one.held[3].Token
	one.leave()
	_, err = b.Leases.Sync(t.Context(), other.request(false))
	require.ErrorAs(t, err, &refused, "it has not let go yet")
	one.leave()
	other.sync()
	requireShared(t, 5, other)
	require.Greater(t, other.held[0].Token, highest, "tokens climb on")
}

// wrongRangesDoNotOutstayTheDead: a group whose holders have all died can be divided anew, after the TTL
// that an outage is given.
func wrongRangesDoNotOutstayTheDead(t *testing.T, b *bench) {
	settle(b.member("one", 4))
	b.Age(b.group, 3*ttl)
	other := b.member("other", 3)
	var refused *shard.RangesError
	_, err := b.Leases.Sync(t.Context(), other.request(false))
	require.ErrorAs(t, err, &refused, "it could be an outage")
	b.Age(b.group, ttl+time.Minute)
	other.sync()
	requireShared(t, 3, other)
}

// tokensClimb: a later lease of a shard has a higher token.
func tokensClimb(t *testing.T, b *bench) {
	last := map[int]shard.Token{}
	for n := range 5 {
		m := b.member(fmt.Sprint("m", n), 3)
		m.sync()
		requireShared(t, 3, m)
		for _, l := range m.held {
			require.Greater(t, l.Token, last[l.Shard])
			last[l.Shard] = l.Token
		}
		m.leave()
		m.leave()
	}
}

func groupsAreApart(t *testing.T, b *bench) {
	one := b.member("same", 4)
	settle(one)
	other := &bench{Backend: b.Backend, t: t, group: b.group + "-other"}
	two := other.member("same", 7)
	settle(two)
	requireShared(t, 4, one)
	requireShared(t, 7, two)
}

func full(t *testing.T, b *bench) {
	for n := range shard.MaxHolders {
		b.member(fmt.Sprint("m", n), 2).sync()
	}
	late := b.member("late", 2)
	_, err := b.Leases.Sync(t.Context(), late.request(false))
	require.ErrorIs(t, err, shard.ErrFull)
	known := b.member("m5", 2)
	known.beat = 1
	b.pass(ttl+time.Minute, known)
	late.sync()
	require.Equal(t, 2, late.last.Holders, "the dead made room")
}

// largest: as many shards as there may be change hands at once.
func largest(t *testing.T, b *bench) {
	one := b.member(strings.Repeat("1", 255), shard.MaxShards)
	two := b.member("two ☃ {}", shard.MaxShards)
	settle(one)
	settle(one, two)
	requireShared(t, shard.MaxShards, one, two)
	b.pass(ttl+time.Minute, two)
	settle(two)
	requireShared(t, shard.MaxShards, two)
}

func arguments(t *testing.T, b *bench) {
	good := b.member("one", 4).request(false)
	for name, spoil := range map[string]func(r *shard.Request){
		"no group":           func(r *shard.Request) { r.Group = "" },
		"group with braces":  func(r *shard.Request) { r.Group = "a}b" },
		"no holder":          func(r *shard.Request) { r.Holder = "" },
		"long holder":        func(r *shard.Request) { r.Holder = strings.Repeat("x", 256) },
		"no beat":            func(r *shard.Request) { r.Beat = 0 },
		"beat too high":      func(r *shard.Request) { r.Beat = fence.MaxNumber + 1 },
		"short TTL":          func(r *shard.Request) { r.TTL = shard.MinTTL - 1 },
		"long TTL":           func(r *shard.Request) { r.TTL = shard.MaxTTL + 1 },
		"held elsewhere":     func(r *shard.Request) { r.Held = []shard.Lease{{Shard: 4, Token: 1}} },
		"held below":         func(r *shard.Request) { r.Held = []shard.Lease{{Shard: -1, Token: 1}} },
		"held twice":         func(r *shard.Request) { r.Held = []shard.Lease{{Shard: 1, Token: 1}, {Shard: 1, Token: 1}} },
		"no token":           func(r *shard.Request) { r.Held = []shard.Lease{{Shard: 1}} },
		"token too high":     func(r *shard.Request) { r.Held = []shard.Lease{{Shard: 1, Token: fence.MaxNumber + 1}} },
		"released elsewhere": func(r *shard.Request) { r.Release = []int{4} },
		"held and released":  func(r *shard.Request) { r.Held, r.Release = []shard.Lease{{Shard: 1, Token: 1}}, []int{1} },
	} {
		r := good
		spoil(&r)
		_, err := b.Leases.Sync(t.Context(), r)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	_, err := b.Leases.Sync(t.Context(), good)
	require.NoError(t, err)
}

func endedContext(t *testing.T, b *bench) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	one := b.member("one", 4)
	_, err := b.Leases.Sync(ctx, one.request(false))
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	two := b.member("two", 4)
	settle(two)
	requireShared(t, 4, two)
}

// concurrent: heartbeats of many holders at once.
func concurrent(t *testing.T, b *bench) {
	const shards = 32
	members := make([]*member, 8)
	var g errgroup.Group
	for i := range members {
		members[i] = b.member(fmt.Sprint("m", i), shards)
		g.Go(func() error {
			m := members[i]
			for range 25 {
				reply, err := b.Leases.Sync(t.Context(), m.request(false))
				if err != nil {
					return err
				}
				m.take(reply)
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	settle(members...)
	requireShared(t, shards, members...)
}
