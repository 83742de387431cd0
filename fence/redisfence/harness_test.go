package redisfence_test

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// newClient connects to a cluster the way the package documentation says.
func newClient(t testing.TB, addrs []string) *redis.ClusterClient {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs,
		ClusterStateReloadInterval: 500 * time.Millisecond,
		ContextTimeoutEnabled:      true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// newStore returns a loaded store on the shared cluster.
func newStore(t testing.TB, cfg *redisfence.Config) (*redisfence.Store, *redis.ClusterClient) {
	t.Helper()
	client := newClient(t, stacktest.Redis(t))
	c := redisfence.Config{}
	if cfg != nil {
		c = *cfg
	}
	c.Persistence = redisfence.Volatile
	store, err := redisfence.New(client, &c)
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	return store, client
}

// newTile returns a tile no test has used; the cluster is shared with other packages' tests.
func newTile() fence.TileID {
	id := fence.NewClaimID()
	n, _ := strconv.ParseUint(id.String()[24:], 16, 64)
	return fence.TileID(n | 1<<56)
}

// hands reaches into the tile's keys past the functions.
type hands struct {
	t      testing.TB
	client redis.UniversalClient
}

func (h hands) ctx() context.Context { return context.WithoutCancel(h.t.Context()) }

func (h hands) entries(tile fence.TileID) []fence.Entry {
	h.t.Helper()
	messages, err := h.client.XRange(h.ctx(), fence.KeysOf(tile).Stream, "-", "+").Result()
	require.NoError(h.t, err)
	entries := make([]fence.Entry, len(messages))
	for i, m := range messages {
		id, ok := strings.CutSuffix(m.ID, "-0")
		require.True(h.t, ok, m.ID)
		frame, _ := m.Values["f"].(string)
		entries[i], err = fence.DecodeEntry([]byte(frame))
		require.NoError(h.t, err)
		require.EqualValues(h.t, h.number(id), entries[i].Seq)
	}
	return entries
}

func (h hands) snapshot(tile fence.TileID) (fence.Snapshot, bool) {
	h.t.Helper()
	m, err := h.client.HGetAll(h.ctx(), fence.KeysOf(tile).Snapshot).Result()
	require.NoError(h.t, err)
	if len(m) == 0 {
		return fence.Snapshot{}, false
	}
	return fence.Snapshot{Position: h.position(m["epoch"], m["seq"], m["chain"]), Tick: fence.Tick(h.number(m["tick"])),
		Contact: m["contact"], Sum: m["sum"], Taken: fence.FromMillis(int64(h.number(m["at"]))),
		Blob: []byte(m["blob"])}, true
}

func (h hands) number(s string) uint64 {
	h.t.Helper()
	n, err := fence.ParseNumber(s)
	require.NoError(h.t, err)
	return n
}

func (h hands) position(epoch, seq, chain string) fence.Position {
	h.t.Helper()
	c, err := fence.ParseChain(chain)
	require.NoError(h.t, err)
	return fence.Position{Epoch: fence.Epoch(h.number(epoch)), Seq: fence.Seq(h.number(seq)), Chain: c}
}

func (h hands) dropOwner(tile fence.TileID) {
	h.t.Helper()
	require.NoError(h.t, h.client.Del(h.ctx(), fence.KeysOf(tile).Owner).Err())
}

func (h hands) dropEntries(tile fence.TileID) {
	h.t.Helper()
	require.NoError(h.t, h.client.Del(h.ctx(), fence.KeysOf(tile).Stream).Err())
}

func (h hands) remaining(tile fence.TileID) time.Duration {
	h.t.Helper()
	d, err := h.client.PTTL(h.ctx(), fence.KeysOf(tile).Owner).Result()
	require.NoError(h.t, err)
	require.NotEqual(h.t, time.Duration(-1), d, "an owner hash without a time to live")
	return max(d, 0)
}

func (h hands) age(tile fence.TileID, d time.Duration) {
	h.t.Helper()
	require.NoError(h.t, h.client.PExpire(h.ctx(), fence.KeysOf(tile).Owner, h.remaining(tile)-d).Err())
}

func (h hands) corruptOwner(tile fence.TileID, field string) {
	h.t.Helper()
	key := fence.KeysOf(tile).Owner
	if field == "contact" {
		require.NoError(h.t, h.client.HDel(h.ctx(), key, field).Err())
		return
	}
	require.NoError(h.t, h.client.HSet(h.ctx(), key, field, "-1").Err())
}

// TestStore runs the suite with calls in shared pipelines, which is the default; with pipelines that are
// always full; and with each call by itself.
func TestStore(t *testing.T) {
	t.Parallel()
	const ttl = 5 * time.Minute
	for name, cfg := range map[string]redisfence.Config{
		"pipelined":  {},
		"two-calls":  *redisfence.Config{}.With(redisfence.Tuning{PipelineCalls: 2}),
		"two-kb":     *redisfence.Config{}.With(redisfence.Tuning{PipelineBytes: 2 << 10}),
		"one-by-one": {Unpipelined: true},
	} {
		cfg.TTL, cfg.ConfirmTimeout = ttl, 500*time.Millisecond
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fencetest.RunStore(t, func(t *testing.T) fencetest.StoreHarness {
				store, client := newStore(t, &cfg)
				h := hands{t, client}
				age := func(tile fence.TileID, d time.Duration) {
					h.age(tile, d)
					store.AgeRenewal(tile, d)
				}
				return fencetest.StoreHarness{Store: store, Entries: h.entries, Snapshot: h.snapshot,
					DropOwner:   h.dropOwner,
					DropEntries: h.dropEntries, TTL: ttl, Remaining: h.remaining, Age: age,
					CorruptOwner: h.corruptOwner, InWorld: func(t *testing.T, name string) fence.Store {
						named := cfg
						named.World.Name = name
						store, _ := newStore(t, &named)
						return store
					}}
			})
		})
	}
}
