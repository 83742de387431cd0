//go:build linux

package benchmark

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
)

// The load of BenchmarkRoutingChurn.
const (
	churnTiles   = 500
	churnMembers = 6
	moveEvery    = 100 * time.Millisecond // one tile changes hands
	leaveEvery   = 2 * time.Second        // one member leaves, after its tiles have moved, and another joins
	lookupEvery  = 500 * time.Microsecond
	churnLength  = 10 * time.Second
)

// BenchmarkRoutingChurn is how often a gateway's first answer is stale while tiles change hands and members of the
// gossip come and go, all on loopback with the fast settings. The owners are simulated: what the store says is true at
// every moment, and a process that does not own a tile names the owner, as a tile server does. An intent that has not
// reached the owner after the one redirect that a gateway follows is lost.
func BenchmarkRoutingChurn(b *testing.B) {
	seed := rand.Uint64()
	b.Logf("seed %d", seed)
	for b.Loop() {
		churn(b, rand.New(rand.NewPCG(seed, 1)))
	}
	b.ReportMetric(0, "ns/op")
}

func churn(b *testing.B, rng *rand.Rand) {
	w := &churnWorld{owners: map[fence.TileID]route.Entry{}, tiles: someTiles(churnTiles)}
	table := new(route.Table)
	gateway := w.join(b, "gateway:1", table)
	defer gateway.stop()
	for range churnMembers {
		w.grow(b)
	}
	for _, id := range w.tiles {
		w.move(b, rng, id)
	}
	w.moved = 0
	time.Sleep(time.Second) // until the gateway has heard
	router, err := route.NewRouter(table, w, nil)
	require.NoError(b, err)

	moves, leaves := time.NewTicker(moveEvery), time.NewTicker(leaveEvery)
	defer moves.Stop()
	defer leaves.Stop()
	lookups := time.NewTicker(lookupEvery)
	defer lookups.Stop()
	var asked, stale, lost int
	for end := time.After(churnLength); ; {
		select {
		case <-end:
			w.stop()
			b.ReportMetric(float64(asked), "lookups")
			b.ReportMetric(100*float64(stale)/float64(asked), "stale-%")
			b.ReportMetric(float64(lost), "lost")
			b.ReportMetric(float64(router.Stats().StoreReads), "store-reads")
			b.ReportMetric(float64(w.moved)/churnLength.Seconds(), "moves/s")
			return
		case <-moves.C:
			w.move(b, rng, w.tiles[rng.IntN(len(w.tiles))])
		case <-leaves.C:
			w.shrink(b, rng)
			w.grow(b)
		case <-lookups.C:
			asked++
			id := w.tiles[rng.IntN(len(w.tiles))]
			contact, err := router.Route(b.Context(), id)
			require.NoError(b, err)
			owner, err := w.Owner(b.Context(), id)
			require.NoError(b, err)
			if contact == owner.Contact {
				continue
			}
			stale++
			router.Correct(contact, route.Entry{Tile: id, Epoch: owner.Epoch, Contact: owner.Contact})
			if again, err := router.Route(b.Context(), id); err != nil || again != owner.Contact {
				lost++
			}
		}
	}
}

// churnWorld knows who owns what.
type churnWorld struct {
	tiles   []fence.TileID
	members []*churnMember // those that may own tiles
	joined  int
	moved   int

	mu     sync.Mutex
	owners map[fence.TileID]route.Entry
}

// churnMember is one process of the gossip.
type churnMember struct {
	*gossip.Node
	contact string
	stop    func()
}

// Owner implements route.OwnerReader.
func (w *churnWorld) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.owners[id]
	return fence.Owner{Tile: id, Epoch: e.Epoch, Contact: e.Contact}, nil
}

// join starts a member.
func (w *churnWorld) join(b *testing.B, contact string, table *route.Table) *churnMember {
	cfg := &gossip.Config{Bind: "127.0.0.1:0", Timing: gossip.Fast()}
	for _, m := range w.members {
		cfg.Seeds = append(cfg.Seeds, m.Addr())
	}
	node, err := gossip.New(contact, table, cfg)
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	<-node.Ready()
	m := &churnMember{Node: node, contact: contact, stop: func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}}
	if w.members == nil { // the gateway is the seed of the first
		w.members = []*churnMember{m}
	}
	return m
}

// grow adds a member that owns nothing yet.
func (w *churnWorld) grow(b *testing.B) {
	w.joined++
	w.members = append(w.members, w.join(b, fmt.Sprintf("host-%d:1", w.joined), new(route.Table)))
}

// shrink hands all tiles of a member over to the others, and lets it leave while the lookups go on.
func (w *churnWorld) shrink(b *testing.B, rng *rand.Rand) {
	i := 1 + rng.IntN(len(w.members)-1) // the first is the gateway
	leaving := w.members[i]
	w.members = append(w.members[:i:i], w.members[i+1:]...)
	for _, id := range w.tiles {
		if w.owners[id].Contact == leaving.contact { // only this goroutine changes it
			w.move(b, rng, id)
		}
	}
	go leaving.stop()
}

// move gives a tile to a member under the next epoch. The member announces that, as a host does when it has installed
// itself.
func (w *churnWorld) move(b *testing.B, rng *rand.Rand, id fence.TileID) {
	m := w.members[1+rng.IntN(len(w.members)-1)]
	w.mu.Lock()
	e := route.Entry{Tile: id, Epoch: w.owners[id].Epoch + 1, Contact: m.contact}
	w.owners[id] = e
	w.mu.Unlock()
	w.moved++
	require.NoError(b, m.Announce(e))
}

// stop ends all members but the gateway.
func (w *churnWorld) stop() {
	for _, m := range w.members[1:] {
		m.stop()
	}
}
