package gossip_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/routetest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// BenchmarkMap is of a map of 100,000 tiles.
func BenchmarkMap(b *testing.B) {
	all := galaxy(100_000)
	msg, _ := gossip.EncodeEntries(all, 16<<20)
	b.Run("Encode", func(b *testing.B) {
		b.SetBytes(int64(len(msg)))
		for b.Loop() {
			gossip.EncodeEntries(all, 16<<20)
		}
		b.ReportMetric(float64(len(msg)), "map_bytes")
	})
	b.Run("Decode", func(b *testing.B) {
		b.SetBytes(int64(len(msg)))
		for b.Loop() {
			if _, _, err := gossip.Decode(msg); err != nil {
				b.Fatal(err)
			}
		}
	})
	// What an exchange costs a member: of a map that changed since the last, and of one that did not.
	node, _ := newNode(b)
	require.NoError(b, node.Announce(all...))
	b.Run("Exchange", func(b *testing.B) {
		epoch := fence.Epoch(1000)
		for b.Loop() {
			epoch++
			require.NoError(b, node.Announce(route.Entry{Tile: all[0].Tile, Epoch: epoch, Contact: "a:1"}))
			node.State()
			node.Merge(msg)
		}
	})
	b.Run("ExchangeOfTheSame", func(b *testing.B) {
		for b.Loop() {
			node.Merge(node.State())
		}
	})
}

// fiveNodes run with Fast, and know each other.
func fiveNodes(b *testing.B, notify func(route.Event)) (*network, []*gossip.Node, []*route.Table) {
	n := newNetwork()
	var tables []*route.Table
	for i := range 5 {
		tables = append(tables, new(route.Table))
		n.run(b, n.node(b, fmt.Sprintf("10.0.0.%d:7000", i+1), tables[i], notify))
	}
	for _, node := range n.nodes {
		waittest.Until(b, func() bool { return len(node.Members()) == 5 }, routetest.Patience, 10*time.Millisecond)
	}
	return n, n.nodes, tables
}

// BenchmarkAnnounce is from Announce until all of five nodes know.
func BenchmarkAnnounce(b *testing.B) {
	_, nodes, tables := fiveNodes(b, nil)
	want := route.Entry{Tile: 1, Contact: "10.0.0.1:7000"}
	for i := 0; b.Loop(); i++ {
		want.Epoch++
		require.NoError(b, nodes[i%5].Announce(want))
		for _, table := range tables {
			for got, _ := table.Lookup(1); got != want; got, _ = table.Lookup(1) {
				time.Sleep(100 * time.Microsecond)
			}
		}
	}
	b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(b.N), "ms/announce")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkDeath is from the moment that one of five nodes falls silent until the first of the others, and
// until all of them, are notified that it died.
func BenchmarkDeath(b *testing.B) {
	var first, all time.Duration
	n := 0
	for b.Loop() {
		b.StopTimer()
		died := make(chan time.Time, 16)
		net, nodes, _ := fiveNodes(b, func(e route.Event) {
			if e.Kind == route.Died {
				died <- time.Now()
			}
		})
		b.StartTimer()
		killed := time.Now()
		net.cut(silent, nodes[4])
		first += (<-died).Sub(killed)
		for range 2 {
			<-died
		}
		all += (<-died).Sub(killed)
		n++
	}
	b.ReportMetric(float64(first.Milliseconds())/float64(n), "ms/first")
	b.ReportMetric(float64(all.Milliseconds())/float64(n), "ms/all")
	b.ReportMetric(0, "ns/op")
}
