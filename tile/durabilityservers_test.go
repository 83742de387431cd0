package tile_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/checkpoint/sqlitecheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/dynamolimits"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// durableStore is what a back end of package checkpoint is.
type durableStore interface {
	checkpoint.Store
	tile.Journal
}

// dynamoStore is a table of the test's own.
func dynamoStore(t testing.TB) durableStore {
	client := dynamodb.New(dynamodb.Options{Region: "local-1", BaseEndpoint: aws.String(stacktest.DynamoDB(t)),
		Credentials: credentials.NewStaticCredentialsProvider("test", "test", "")},
		dynamolimits.Check(func(err error) { t.Error(err) }))
	store, err := dynamocheckpoint.New(client, stacktest.UniqueName(t), nil)
	require.NoError(t, err)
	require.NoError(t, store.EnsureTable(t.Context()))
	return store
}

func sqliteStore(t testing.TB) durableStore {
	store, err := sqlitecheckpoint.Open(t.Context(), filepath.Join(t.TempDir(), "checkpoints.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = store.Close() })
	return store
}

// onRedis are seams on the shared Redis cluster, with an authority in memory: it has no part in a commit.
func onRedis(t testing.TB) (tile.Seams, *redis.ClusterClient) {
	client := redis.NewClusterClient(redisfence.Options(stacktest.Redis(t)...))
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	return tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: redisstream.New(store, client)}, client
}

func onStore(class tile.Durability) tile.Config {
	return tile.Config{Durability: class, TickInterval: 20 * time.Millisecond, SnapshotEvery: 1 << 20,
		Timeouts: tile.Timeouts{CommitTimeout: 2 * time.Second, BootTimeout: 30 * time.Second}}
}

// above are seams with a durable store.
func above(seams tile.Seams, d durableStore) tile.Seams {
	seams.Journal = d
	seams.Checkpoint = func(ctx context.Context, id fence.TileID) (fence.Snapshot, bool, error) {
		return checkpoint.Restore(ctx, d, id)
	}
	return seams
}

// All that Redis has of a tile is deleted together with its owner, on real servers, in each class.
func TestLostCoordinationOnRealServers(t *testing.T) {
	seams, client := onRedis(t)
	d := dynamoStore(t)
	seams = above(seams, d)
	for i, id := range tileIDs(len(classes)) {
		class := classes[i]
		var mu sync.Mutex
		var reports []tile.RestoredInfo
		cfg := onStore(class)
		cfg.Hooks.Restored = func(i tile.RestoredInfo) { mu.Lock(); defer mu.Unlock(); reports = append(reports, i) }
		say := func(prefix string, n int) (words []string) {
			rules := &ledgerRules{}
			p, err := tile.New(id, "a:1", seams, rules, &cfg)
			require.NoError(t, err)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- p.Run(ctx) }()
			for i := range n {
				word := fmt.Sprint(prefix, i)
				_, err := p.Submit(t.Context(), tile.Intent{Tile: id, ActionID: word, Body: []byte(word)})
				require.NoError(t, err)
			}
			stop()
			require.NoError(t, <-ended)
			return slices.Clone(rules.Words)
		}
		early := say("early", 5)
		snap, found, err := seams.Log.Snapshot(t.Context(), id)
		require.NoError(t, err)
		require.True(t, found)
		require.NoError(t, d.Put(t.Context(), id, snap)) // as a Checkpointer does
		all := say("late", 5)
		k := fence.KeysOf(id)
		require.NoError(t, client.Del(t.Context(), k.Owner, k.Stream, k.Snapshot).Err())
		kept := early
		if class == tile.WriteThrough {
			kept = all
		}
		assert.Equal(t, append(slices.Clone(kept), "after0"), say("after", 1), class)
		mu.Lock()
		if assert.Len(t, reports, 1, class) {
			assert.Equal(t, class == tile.WriteThrough, reports[0].Exact)
			assert.Equal(t, class == tile.WriteThrough, reports[0].LostTicks == 0)
		}
		mu.Unlock()
		client.Del(t.Context(), k.Owner, k.Stream, k.Snapshot)
	}
}

// BenchmarkDurability is what a tick with one action of about 1 KiB costs in each class, from forming its batch to
// the answer, without the wait for the tick: of one tile alone, and of 64 tiles that play at once. p50, p99, and of the
// mean the parts in the store (its wait for replicas included) and in the journal are in milliseconds.
func BenchmarkDurability(b *testing.B) {
	seams, client := onRedis(b)
	for _, way := range []struct {
		name  string
		class tile.Durability
		store func(testing.TB) durableStore
	}{
		{"checkpointed", tile.Checkpointed, sqliteStore},
		{"replicated", tile.Replicated, sqliteStore},
		{"write-through-dynamodb", tile.WriteThrough, dynamoStore},
		{"write-through-sqlite", tile.WriteThrough, sqliteStore},
	} {
		for _, n := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/tiles=%d", way.name, n), func(b *testing.B) {
				m := &ticking{class: way.class, seams: above(seams, way.store(b)), client: client,
					cfg: onStore(way.class)}
				m.play(b, n)
				m.report(b)
			})
		}
	}
}

// ticking plays tiles and measures their commits.
type ticking struct {
	class  tile.Durability
	seams  tile.Seams
	client *redis.ClusterClient
	cfg    tile.Config

	mu      sync.Mutex
	commits []tile.CommitInfo
}

func (m *ticking) play(b *testing.B, n int) {
	m.cfg.Hooks.Committed = func(i tile.CommitInfo) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.commits = append(m.commits, i)
	}
	ids := tileIDs(n)
	tiles := make([]*tile.TileProcessor, n)
	for i, id := range ids {
		var err error
		tiles[i], err = tile.New(id, "a:1", m.seams, &tally{}, &m.cfg)
		require.NoError(b, err)
		require.NoError(b, tiles[i].BootOnly(b.Context()))
	}
	b.ResetTimer()
	var all sync.WaitGroup
	for i, p := range tiles {
		ticks := b.N / n
		if i < b.N%n {
			ticks++
		}
		all.Go(func() {
			for k := range ticks {
				if err := m.tick(b.Context(), p, ids[i], k); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	b.StopTimer()
	for _, id := range ids {
		k := fence.KeysOf(id)
		m.client.Del(context.Background(), k.Owner, k.Stream, k.Snapshot)
	}
}

// tick has one action played.
func (m *ticking) tick(ctx context.Context, p *tile.TileProcessor, id fence.TileID, n int) error {
	answered := make(chan error, 1)
	go func() {
		_, err := p.Submit(ctx, tile.Intent{Tile: id, ActionID: fmt.Sprint(n), Body: make([]byte, 1000)})
		answered <- err
	}()
	for p.Status().Queued == 0 {
		time.Sleep(20 * time.Microsecond)
	}
	if err := p.PlayTicks(ctx, 1); err != nil {
		return err
	}
	return <-answered
}

func (m *ticking) report(b *testing.B) {
	var took []time.Duration
	var committing, journaling time.Duration
	for _, c := range m.commits {
		took = append(took, c.Took)
		committing += c.Committing + c.Confirming
		journaling += c.Journaling
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(committing)/float64(len(took)), "store-ms")
	b.ReportMetric(ms(journaling)/float64(len(took)), "journal-ms")
	b.ReportMetric(float64(len(took))/b.Elapsed().Seconds(), "ticks/s")
}

// tally is a game that counts its events.
type tally struct{ ledgerRules }

func (l *tally) Apply(_ fence.Tick, events [][]byte) error {
	l.Words = append(l.Words[:0], fmt.Sprint(len(l.Words)+len(events)))
	return nil
}

// tileIDs are n tiles that no other test uses.
func tileIDs(n int) []fence.TileID {
	ids := make([]fence.TileID, n)
	for i := range ids {
		ids[i] = fence.TileID(rand.Uint64()>>9 | 1)
	}
	return ids
}
