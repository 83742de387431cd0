//go:build linux

package benchmark

import (
	"context"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/serverfault"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
)

const straitPairs = 8 // of tiles

// BenchmarkCrossingKilled kills in the middle of crossings: the tile server of one side of 8 pairs of tiles, which
// ticks at 2 Hz and which 4 entities a tick leave each way; a warm follower takes over, found by gossip's fast
// settings. owner: with SIGKILL. hung: with SIGSTOP, so that its connections stay open, as those of a machine do
// that has lost its power. master: the master of the side's tiles, which has two replicas. Measured are the
// crossings that were under way between the kill and the first batch of the tile after it, which is what takeover-…
// counts to: over-ticks-… is from the departure's batch to the arrival's less that tile's take-over, in ticks;
// source-… if the tile that was left was hit, destination-… the other. lost counts what was taken nowhere in the
// end.
func BenchmarkCrossingKilled(b *testing.B) {
	s := newStrait(b)
	for name, sig := range map[string]syscall.Signal{"owner": syscall.SIGKILL, "hung": devstack.Pause} {
		b.Run(name, func(b *testing.B) {
			s.play(b, func(side int) func() { return s.strike(b, side, sig) },
				func(a sighting, epoch fence.Epoch, _ time.Time) bool { return a.epoch > epoch })
		})
	}
	b.Run("master", func(b *testing.B) {
		s.play(b, func(side int) func() { return s.fail(b, side) },
			func(a sighting, _ fence.Epoch, struck time.Time) bool { // not what was on its way to this reader
				return a.at.Sub(struck) > crossingTick
			})
	})
}

// strait is two groups of tiles, each on one shard and served by one process that another follows.
type strait struct {
	b        *testing.B // that all of it lasts for
	log      *redisstream.Log
	cluster  *serverfault.Cluster
	cfg      ferryConfig
	sides    [2][]fence.TileID
	servers  [2][2]*process // of a side, the owner first
	voices   map[*process]string
	watching sync.Mutex // guards what follows
	read     map[fence.TileID]fence.Seq
	left     []passage
	decided  map[fence.TileID][]sighting // what has left a tile, by their marks
	batches  map[fence.TileID][]sighting
}

// passage is an entity that has departed.
type passage struct {
	from, to fence.TileID
	id       stream.TransferID
	at       time.Time // when its batch was formed
}

// sighting is when something was first in a stream.
type sighting struct {
	id    stream.TransferID
	epoch fence.Epoch
	at    time.Time
}

// killRounds is how often each benchmark kills: TILEFENCE_BENCH_KILLS, or 36.
func killRounds(b *testing.B) int { return numberOf(b, "TILEFENCE_BENCH_KILLS", 36) }

func newStrait(b *testing.B) *strait {
	stack := stacktest.Start(b, devstack.Config{Replicas: 2, Parts: []devstack.Part{devstack.Coordination,
		devstack.Postgres}})
	client := redis.NewClusterClient(redisfence.Options(stack.CoordAddrs...))
	b.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(b, err)
	require.NoError(b, store.Load(b.Context()))
	s := &strait{b: b, log: redisstream.New(store, client), voices: map[*process]string{},
		cluster: &serverfault.Cluster{Cluster: stack.Cluster(), Client: client},
		cfg:     ferryConfig{Redis: stack.CoordAddrs, Postgres: stack.PostgresURL},
		read:    map[fence.TileID]fence.Seq{}, decided: map[fence.TileID][]sighting{},
		batches: map[fence.TileID][]sighting{}}
	b.Cleanup(s.cluster.Close)
	var shards [2]*devstack.Process
	for len(s.sides[0]) < straitPairs || len(s.sides[1]) < straitPairs {
		id := fence.TileID(rand.Uint64()>>9 | 1)
		shard, err := s.cluster.MasterOf(b.Context(), id)
		require.NoError(b, err)
		for i := range shards {
			if shards[i] == nil && shard != shards[0] {
				shards[i] = shard
			}
			if shard == shards[i] && len(s.sides[i]) < straitPairs {
				s.sides[i] = append(s.sides[i], id)
			}
		}
	}
	for side := range s.servers {
		for i := range s.servers[side] {
			s.servers[side][i] = s.serve(side)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { s.watch(ctx) })
	b.Cleanup(func() {
		cancel()
		watch.Wait()
	})
	return s
}

// serve starts a tile server of a side, and waits until it owns or follows the tiles.
func (s *strait) serve(side int) *process {
	b := s.b
	cfg := s.cfg
	cfg.Contact, cfg.Gossip, cfg.Tiles, cfg.Others = freeAddress(b), freeAddress(b), s.sides[side], s.sides[1-side]
	cfg.Full = side == 0
	for _, voice := range s.voices {
		cfg.Seeds = append(cfg.Seeds, voice)
	}
	p := launch(b, envFerries, cfg)
	p.contact = cfg.Contact
	p.await(b, "ready")
	s.voices[p] = cfg.Gossip
	return p
}

func freeAddress(b *testing.B) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// strike hits a side's owner. What it returns brings a server in its place.
func (s *strait) strike(b *testing.B, side int, sig os.Signal) (mend func()) {
	hit := s.servers[side][0]
	require.NoError(b, hit.cmd.Process.Signal(sig))
	return func() {
		hit.kill()
		delete(s.voices, hit)
		s.servers[side] = [2]*process{s.servers[side][1], s.serve(side)}
	}
}

// fail kills the master of a side's tiles. What it returns brings it back as a replica.
func (s *strait) fail(b *testing.B, side int) (mend func()) {
	shard, err := s.cluster.ShardOf(b.Context(), s.sides[side][0])
	require.NoError(b, err)
	var damage faultinject.Damage
	require.NoError(b, s.cluster.KillMaster(&damage, shard, 30*time.Second))
	return func() {
		require.NoError(b, damage.Repair(b.Context()))
		require.NoError(b, s.cluster.AwaitWhole(b.Context(), time.Minute))
	}
}

// play hits one side after the other. after says of a batch of a tile that was hit, so long after that, whether it is
// the first that shows the tile served again; epoch is that of the tile before.
func (s *strait) play(
	b *testing.B, hit func(side int) (mend func()), after func(batch sighting, epoch fence.Epoch, hit time.Time) bool,
) {
	for b.Loop() {
		var k killMeter
		for round := range killRounds(b) {
			side := round % 2
			time.Sleep(time.Second + rand.N(crossingTick)) // anywhere in the ticks
			s.begin()
			time.Sleep(3 * crossingTick) // what is under way at the kill has left by then
			epochs := s.epochs(b, side)
			struck := time.Now()
			mend := hit(side)
			serving := map[fence.TileID]time.Time{}
			waittest.Until(b, func() bool {
				for id, epoch := range epochs {
					if serving[id].IsZero() {
						serving[id] = s.first(id, func(a sighting) bool { return after(a, epoch, struck) })
					}
				}
				return !slices.ContainsFunc(s.sides[side], func(id fence.TileID) bool { return serving[id].IsZero() })
			}, time.Minute, 10*time.Millisecond, "every tile is served again")
			time.Sleep(6 * crossingTick) // what was under way has arrived
			k.add(s, serving, struck)
			mend()
		}
		k.report(b)
	}
}

// begin forgets what was seen.
func (s *strait) begin() {
	s.watching.Lock()
	defer s.watching.Unlock()
	clear(s.batches)
	clear(s.decided)
	s.left = nil
}

// epochs are those under which a side's tiles are served.
func (s *strait) epochs(b *testing.B, side int) map[fence.TileID]fence.Epoch {
	s.watching.Lock()
	defer s.watching.Unlock()
	found := map[fence.TileID]fence.Epoch{}
	for _, id := range s.sides[side] {
		all := s.batches[id]
		require.NotEmpty(b, all, "tile %s does nothing", id)
		found[id] = all[len(all)-1].epoch
	}
	return found
}

// first is when the first batch of a tile was seen of which is is true; zero: none was.
func (s *strait) first(id fence.TileID, is func(sighting) bool) time.Time {
	s.watching.Lock()
	defer s.watching.Unlock()
	if i := slices.IndexFunc(s.batches[id], is); i >= 0 {
		return s.batches[id][i].at
	}
	return time.Time{}
}

// killMeter sums up what kills did to crossings.
type killMeter struct {
	takeovers []time.Duration
	took      [2][]time.Duration // of those whose source was struck, and of those whose destination was
	over      [2][]float64       // ticks, beside the take-over of the tile that was struck
	lost      int
}

// add adds the crossings that a kill of the tiles met under way.
func (k *killMeter) add(s *strait, serving map[fence.TileID]time.Time, struck time.Time) {
	s.watching.Lock()
	defer s.watching.Unlock()
	for _, at := range serving {
		k.takeovers = append(k.takeovers, at.Sub(struck))
	}
	for _, p := range s.left {
		arrived := time.Time{}
		if i := slices.IndexFunc(s.decided[p.from], func(d sighting) bool { return d.id.Compare(p.id) >= 0 }); i >= 0 {
			arrived = s.decided[p.from][i].at
		}
		for i, id := range []fence.TileID{p.from, p.to} {
			at, is := serving[id]
			switch {
			case !is || p.at.After(at) || !arrived.IsZero() && arrived.Before(struck):
			case arrived.IsZero():
				k.lost++
			default:
				k.took[i] = append(k.took[i], arrived.Sub(p.at))
				k.over[i] = append(k.over[i], float64(arrived.Sub(p.at)-at.Sub(struck))/float64(crossingTick))
			}
		}
	}
}

func (k *killMeter) report(b *testing.B) {
	percentiles(b, "takeover", k.takeovers)
	for i, name := range []string{"source", "destination"} {
		percentiles(b, name, k.took[i])
		over := k.over[i]
		require.NotEmpty(b, over, "no crossing was under way at a kill whose %s it was", name)
		slices.Sort(over)
		b.ReportMetric(over[len(over)*99/100], name+"-over-ticks-p99")
		b.ReportMetric(over[len(over)-1], name+"-over-ticks-max")
	}
	b.ReportMetric(float64(k.lost), "lost")
	b.ReportMetric(float64(len(k.took[0])+len(k.took[1])), "crossings")
	b.ReportMetric(0, "ns/op")
}

// watch reads the streams until ctx ends. Reads that fail are repeated.
func (s *strait) watch(ctx context.Context) {
	for ctx.Err() == nil {
		var cursors []stream.Cursor
		for _, id := range slices.Concat(s.sides[0], s.sides[1]) {
			cursors = append(cursors, stream.Cursor{Tile: id, After: s.read[id]})
		}
		chunks, _ := s.log.Read(ctx, cursors) // a master may be away
		s.watching.Lock()
		for i := range chunks {
			for j := range chunks[i].Entries {
				s.saw(&chunks[i].Entries[j])
			}
		}
		s.watching.Unlock()
		time.Sleep(5 * time.Millisecond)
	}
}

// saw notes what a batch has of crossings. s.watching is held.
func (s *strait) saw(e *fence.Entry) {
	s.read[e.Tile] = e.Seq
	now := time.Now()
	s.batches[e.Tile] = append(s.batches[e.Tile], sighting{epoch: e.Epoch, at: now})
	batch, err := stream.DecodeBatch(e)
	if err != nil {
		return // a rebase: it has nothing new
	}
	for i, d := range batch.Departures {
		s.left = append(s.left, passage{from: e.Tile, to: d.To, at: e.At,
			id: stream.TransferID{Epoch: e.Epoch, Seq: e.Seq, Index: i}})
	}
	for _, d := range batch.Decisions {
		if !d.Mark.IsZero() {
			s.decided[d.From] = append(s.decided[d.From], sighting{id: d.Mark, at: now})
		}
	}
}
