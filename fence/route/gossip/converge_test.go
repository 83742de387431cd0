package gossip_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/routetest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// converge waits until all tables are what want is.
func converge(t testing.TB, want *route.Table, tables ...*route.Table) {
	t.Helper()
	all := want.Snapshot()
	began := time.Now()
	for i, table := range tables {
		waittest.Until(t, func() bool {
			return table.Stats().Known == len(all) && slices.Equal(all, table.Snapshot())
		}, 3*routetest.Patience, 200*time.Millisecond, "table %d", i)
	}
	t.Logf("%d tables of %d tiles are equal after %v", len(tables), len(all), time.Since(began).Round(time.Millisecond))
}

// TestAWholeMapConverges: 10,000 tiles between several members; then one that comes late; then through a partition in
// which both sides go on. BenchmarkMap has ten times as many.
func TestAWholeMapConverges(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds of CPU")
	}
	t.Parallel()
	const tiles = 10_000
	net := newNetwork()
	// A member of a busy machine is not dead.
	net.timing.ProbeInterval, net.timing.ProbeTimeout = 500*time.Millisecond, 400*time.Millisecond
	want := new(route.Table)
	var nodes []*gossip.Node
	var tables []*route.Table
	start := func() {
		t.Helper()
		tables = append(tables, new(route.Table))
		node := net.node(t, fmt.Sprintf("10.0.0.%d:7000", len(nodes)+1), tables[len(nodes)], nil)
		// A member that is cut off for longer than the others remember it has to be searched for.
		node.ForgetTheDead(500 * time.Millisecond)
		net.run(t, node)
		nodes = append(nodes, node)
	}
	announce := func(by int, entries ...route.Entry) {
		t.Helper()
		want.Learn(entries...)
		require.NoError(t, nodes[by].Announce(entries...))
	}
	for range 3 {
		start()
	}
	all := galaxy(tiles)
	for i := range nodes {
		announce(i, all[i*tiles/3:(i+1)*tiles/3]...)
	}
	converge(t, want, tables...)
	require.Equal(t, tables[0].Snapshot(), all)

	start()
	converge(t, want, tables...)

	net.cut(1, nodes[0], nodes[3])
	waittest.Until(t, func() bool {
		return !slices.ContainsFunc(nodes, func(n *gossip.Node) bool { return len(n.Members()) != 2 })
	}, 2*routetest.Patience, 10*time.Millisecond, "both sides believe that the other died")
	time.Sleep(time.Second) // and have forgotten it
	for i, e := range all[:2000] {
		e.Epoch += fence.Epoch(1 + i%3)
		e.Contact = "10.0.0.1:7000"
		announce(0, e)
		e.Epoch += fence.Epoch(i % 2) // the other side is ahead, or says something else at the same epoch
		e.Contact = []string{"", "10.0.0.2:7000"}[i/2%2]
		announce(1, e)
	}
	net.cut(0, nodes[0], nodes[3])
	converge(t, want, tables...)
	for _, n := range nodes {
		waittest.Until(t, func() bool { return len(n.Members()) == 4 }, routetest.Patience, 10*time.Millisecond)
		require.Zero(t, n.Stats().Refused)
	}
}

// TestChurn: members come, die and leave, all of them announcing. Those that are left agree, among each
// other and on what happened.
func TestChurn(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	net, want := newNetwork(), new(route.Table)
	type life struct {
		node  *gossip.Node
		table *route.Table
		end   func()
		seen  *events
	}
	var alive []*life
	born := 0
	start := func() {
		born++
		l := &life{table: new(route.Table), seen: new(events)}
		l.node = net.node(t, fmt.Sprintf("10.0.0.%d:7000", born), l.table, l.seen.add)
		l.end = net.run(t, l.node)
		alive = append(alive, l)
	}
	start()
	start()
	for range 12 {
		switch i := random.IntN(len(alive)); {
		case len(alive) < 3 || random.IntN(3) == 0 && len(alive) < 6:
			start()
		case random.IntN(2) == 0:
			alive[i].end()
			alive = slices.Delete(alive, i, i+1)
		default:
			net.cut(silent, alive[i].node)
			alive[i].end()
			alive = slices.Delete(alive, i, i+1)
		}
		for range 40 {
			l := alive[random.IntN(len(alive))]
			e := route.Entry{Tile: fence.TileID(1 + random.IntN(100)), Epoch: fence.Epoch(1 + random.IntN(50)),
				Contact: "10.0.0.1:7000"}
			require.NoError(t, l.node.Announce(e))
		}
		time.Sleep(time.Duration(random.IntN(300)) * time.Millisecond)
	}
	// Announcements of a member that died before it spread them are lost: the result is the join of the others.
	var tables []*route.Table
	for _, l := range alive {
		waittest.Until(t, func() bool {
			return len(l.node.Members()) == len(alive)
		}, routetest.Patience, 10*time.Millisecond)
		want.Learn(l.table.Snapshot()...)
		tables = append(tables, l.table)
	}
	converge(t, want, tables...)
	for _, l := range alive {
		for name, kinds := range l.seen.byName() {
			for i, kind := range kinds { // joined, gone, joined, …
				require.Equal(t, i%2 == 0, kind == route.Joined, "%s: %v", name, kinds)
			}
		}
	}
}

// events of one member's Notify.
type events struct {
	mu  sync.Mutex
	all []route.Event
}

func (e *events) add(event route.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, event)
}

func (e *events) byName() map[string][]route.EventKind {
	e.mu.Lock()
	defer e.mu.Unlock()
	kinds := map[string][]route.EventKind{}
	for _, event := range e.all {
		kinds[event.Member.Name] = append(kinds[event.Member.Name], event.Kind)
	}
	return kinds
}

// run runs a node until the test ends, or until end is called.
func (n *network) run(t testing.TB, node *gossip.Node) (end func()) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	end = sync.OnceFunc(func() {
		stop()
		require.NoError(t, <-ended)
	})
	t.Cleanup(end)
	addrOf(t, node)
	return end
}
