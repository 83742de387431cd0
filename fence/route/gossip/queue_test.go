package gossip_test

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
)

const packet = 1400

func newNode(t require.TestingT) (*gossip.Node, *route.Table) {
	table := new(route.Table)
	n, err := gossip.New("a:1", table, nil)
	require.NoError(t, err)
	return n, table
}

// packed returns the entries of the messages for one packet.
func packed(t require.TestingT, n *gossip.Node, limit int) []route.Entry {
	var all []route.Entry
	size := 0
	for _, msg := range n.Packet(limit) {
		size += 3 + len(msg)
		entries, _, err := gossip.Decode(msg)
		require.NoError(t, err)
		all = append(all, entries...)
	}
	require.LessOrEqual(t, size, limit)
	return all
}

// TestANewerEntryReplacesTheQueuedOne: the old one is not sent any more.
func TestANewerEntryReplacesTheQueuedOne(t *testing.T) {
	t.Parallel()
	n, _ := newNode(t)
	old, other := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}, route.Entry{Tile: 2, Epoch: 1, Contact: "a:1"}
	require.NoError(t, n.Announce(old, other))
	require.ElementsMatch(t, []route.Entry{old, other}, packed(t, n, packet))
	now := route.Entry{Tile: 1, Epoch: 2, Contact: "b:1"}
	require.NoError(t, n.Announce(now))
	require.NoError(t, n.Announce(old, now))
	require.ElementsMatch(t, []route.Entry{now, other}, packed(t, n, packet))
	require.Equal(t, 2, n.Stats().Queued)
}

// TestEachEntryIsSentAFewTimes: the least sent first, the newest of those; and all are sent as often.
func TestEachEntryIsSentAFewTimes(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		n, _ := newNode(t)
		total := rapid.IntRange(0, 900).Draw(t, "entries")
		for i := range total {
			e := route.Entry{Tile: 0x8500000fffffff | fence.TileID(i+1)<<28, Epoch: 1,
				Contact: fmt.Sprintf("10.0.0.%d:7000", i%17)}
			require.NoError(t, n.Announce(e))
		}
		times := map[route.Entry]int{}
		sent := [6]int{0: total} // how many entries were sent so often
		for n.Stats().Queued > 0 {
			limit := rapid.IntRange(60, packet).Draw(t, "limit")
			entries := packed(t, n, limit)
			require.NotEmpty(t, entries)
			for _, e := range entries {
				sent[times[e]]--
				times[e]++
				sent[times[e]]++
			}
			lowest := slices.IndexFunc(sent[:], func(n int) bool { return n > 0 })
			for highest := lowest + 3; highest < len(sent); highest++ {
				require.Zero(t, sent[highest], "while others were sent %d times", lowest)
			}
		}
		require.Len(t, times, total)
		for e, sent := range times {
			require.Equal(t, 4, sent, "%v", e) // with up to nine members
		}
		require.Empty(t, n.Packet(packet))
	})
}

// TestManyEntriesShareAPacket, and its contacts.
func TestManyEntriesShareAPacket(t *testing.T) {
	t.Parallel()
	n, _ := newNode(t)
	require.NoError(t, n.Announce(galaxy(2000)...))
	require.Greater(t, len(packed(t, n, packet)), 200)
	longest := route.Entry{Tile: 1 << 63, Epoch: fence.MaxNumber, Contact: strings.Repeat("x", fence.MaxContact)}
	require.NoError(t, n.Announce(longest))
	for range 100 {
		for _, e := range packed(t, n, packet) {
			if e == longest {
				return
			}
		}
	}
	t.Fatal("the longest entry does not get into a packet")
}

// TestTheQueueIsBounded: it forgets what was sent most often, and the oldest of that.
func TestTheQueueIsBounded(t *testing.T) {
	t.Parallel()
	const most = 300
	n, _ := newNode(t)
	require.Equal(t, 1<<16, n.LimitQueue(most))
	require.NoError(t, n.Announce(galaxy(most+70)...))
	require.Equal(t, most, n.Stats().Queued)
	last := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}
	require.NoError(t, n.Announce(last))
	require.Equal(t, most, n.Stats().Queued)
	require.Contains(t, packed(t, n, packet), last)
}

// TestNewsArePassedOn: what is news is sent on; what is known is not.
func TestNewsArePassedOn(t *testing.T) {
	t.Parallel()
	n, table := newNode(t)
	some := galaxy(50)
	msg, _ := gossip.EncodeEntries(some, packet)
	n.Receive(msg)
	require.Equal(t, some, table.Snapshot())
	require.ElementsMatch(t, some, packed(t, n, packet))
	n.Receive(msg)
	require.Equal(t, gossip.Stats{Packets: 2, PacketNews: 50, Queued: 50}, n.Stats())

	few, _ := gossip.EncodeEntries(galaxy(1000), 1<<20)
	n.Merge(few)
	require.Equal(t, gossip.Stats{Packets: 2, PacketNews: 50, States: 1, StateNews: 950, Queued: 1000}, n.Stats())
	many, _ := gossip.EncodeEntries(galaxy(9000), 1<<20)
	n.Merge(many)
	require.Equal(t, gossip.Stats{Packets: 2, PacketNews: 50, States: 2, StateNews: 8950, Queued: 1000}, n.Stats(),
		"many travel with maps")
}

// TestALargeMapTravelsInParts, and all of it gets there, while it changes.
func TestALargeMapTravelsInParts(t *testing.T) {
	t.Parallel()
	from, _ := newNode(t)
	from.LimitState(500)
	to, table := newNode(t)
	require.NoError(t, from.Announce(galaxy(1000)...))
	for i := range fence.Epoch(40) {
		require.NoError(t, from.Announce(route.Entry{Tile: 1, Epoch: i + 1, Contact: "a:1"}))
		state := from.State()
		require.LessOrEqual(t, len(state), 500)
		to.Merge(state)
	}
	require.Equal(t, 1001, table.Stats().Known)
	// One that fits is made once, for as long as nothing changes.
	require.NoError(t, to.Announce(route.Entry{Tile: 1, Epoch: 99}))
	state := to.State()
	require.Same(t, &state[0], &to.State()[0])
	require.NoError(t, to.Announce(route.Entry{Tile: 1, Epoch: 100}))
	require.NotEqual(t, state, to.State())
}

// TestRefusalsAreLogged, but not without end.
func TestRefusalsAreLogged(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	n, err := gossip.New("a:1", new(route.Table), &gossip.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	for range 1000 {
		n.Receive([]byte("nonsense"))
	}
	require.Equal(t, uint64(1000), n.Stats().Refused)
	require.Contains(t, log.String(), "malformed gossip message")
	require.LessOrEqual(t, strings.Count(log.String(), "\n"), 20)
}
