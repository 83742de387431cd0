package prommetrics

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/memplan"
)

func TestNewWantsARegistry(t *testing.T) {
	_, err := New(nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// Each server's one line reaches every Hooks in its configuration.
func TestOneLineForEachServer(t *testing.T) {
	_, m := fresh(t)
	var (
		tiles      tilefence.TileServerConfig
		gateway    tilefence.GatewayServerConfig
		bridges    tilefence.BridgeServerConfig
		relay      tilefence.RelayServerConfig
		checkpoint tilefence.CheckpointServerConfig
	)
	Attach(m, &tiles)
	Attach(m, &gateway)
	Attach(m, &bridges)
	Attach(m, &relay)
	Attach(m, &checkpoint)
	found := 0
	for _, cfg := range []any{tiles, gateway, bridges, relay, checkpoint} {
		found += eachHooks(t, reflect.ValueOf(cfg))
	}
	require.Equal(t, 7, found, "tile, host, gateway, its clients, bridge, relay, checkpointer")
}

// eachHooks counts the Hooks within a configuration, and wants each to call something.
func eachHooks(t *testing.T, v reflect.Value) int {
	if v.Kind() != reflect.Struct {
		return 0
	}
	found := 0
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() {
			continue
		}
		if field.Type.Name() != "Hooks" {
			found += eachHooks(t, v.Field(i))
			continue
		}
		found++
		set := 0
		for j := range v.Field(i).NumField() {
			if !v.Field(i).Field(j).IsNil() {
				set++
			}
		}
		assert.Positive(t, set, "%s has no hooks", field.Type)
	}
	return found
}

// The queues of all shards are added up; what cannot be read is counted.
func TestPlanAddsTheShardsUp(t *testing.T) {
	registry, m := fresh(t)
	store := &failing{Store: memplan.New()}
	m.Plan(store)
	shards := map[int]bool{}
	var first plan.Request
	for i := range 16 {
		r := plan.Request{ID: fmt.Sprint("r", i), Tile: fence.TileID(i + 1), Entity: "ship", Tier: plan.Background}
		if i == 0 {
			r.Tier, first = plan.Player, r
		}
		shard := plan.ShardOf(r.Tile, store.Shards())
		shards[shard] = true
		asked := store.Turn(t.Context(), shard, []plan.Turn{{Tile: r.Tile, Epoch: 1, Ask: []plan.Request{r}}})
		require.True(t, asked[0].Asked[0].Taken)
	}
	require.Greater(t, len(shards), 1)
	_, err := store.Claim(t.Context(), plan.ShardOf(first.Tile, store.Shards()),
		plan.Claim{Worker: "w", Lease: time.Minute, Players: 1, Attempts: 5})
	require.NoError(t, err)
	depth := values(t, registry)
	assert.EqualValues(t, 15, depth["tilefence_plan_depth_background"])
	assert.EqualValues(t, 0, depth["tilefence_plan_depth_players"])
	assert.EqualValues(t, 1, depth["tilefence_plan_depth_busy"])
	assert.Zero(t, depth["tilefence_scrape_errors_total"])

	store.fail = true
	depth = values(t, registry)
	assert.NotContains(t, depth, "tilefence_plan_depth_background")
	assert.EqualValues(t, 1, depth["tilefence_scrape_errors_total"])
}

// failing is a store that cannot be read.
type failing struct {
	plan.Store
	fail bool
}

func (f *failing) Depth(ctx context.Context, shard int) (plan.Depth, error) {
	if f.fail {
		return plan.Depth{}, errors.New("the store is away")
	}
	return f.Store.Depth(ctx, shard)
}

// The game's own hooks are called as before.
func TestOwnHooksAreStillCalled(t *testing.T) {
	_, m := fresh(t)
	var ticks []tile.TickInfo
	forgotten := 0
	h := tile.Hooks{Ticked: func(i tile.TickInfo) { ticks = append(ticks, i) },
		Forgotten: func(fence.TileID, fence.Position) { forgotten++ }}
	Attach(m, &h)
	h.Ticked(tile.TickInfo{Tick: 7})
	h.Forgotten(1, fence.Position{})
	require.Equal(t, []tile.TickInfo{{Tick: 7}}, ticks)
	require.Equal(t, 1, forgotten)
}

// Two servers of a kind in one process write to the same metrics.
func TestServersOfAProcessShareMetrics(t *testing.T) {
	registry, m := fresh(t)
	var one, two tile.Hooks
	Attach(m, &one)
	Attach(m, &two)
	one.Ticked(tile.TickInfo{Intents: 2})
	two.Ticked(tile.TickInfo{Intents: 3})
	require.InDelta(t, 5, values(t, registry)["tilefence_tile_intents_total"], 0)
}

func TestWhatIsObserved(t *testing.T) {
	registry, m := fresh(t)
	var h tile.Hooks
	Attach(m, &h)
	h.Committed(tile.CommitInfo{Refresh: true})
	h.Committed(tile.CommitInfo{Bytes: 300, Durability: tile.WriteThrough, Journaling: time.Millisecond})
	h.Refused(tile.RefusalInfo{Err: fmt.Errorf("commit: %w", fence.ErrStale)})
	h.Refused(tile.RefusalInfo{Err: errors.New("new")})
	h.Snapshotted(tile.SnapshotInfo{Trimmed: &stream.Trimmed{Held: stream.RelayMember("a"), Removed: 4,
		Expired: []stream.Consumer{stream.RelayMember("b")}}})
	h.Snapshotted(tile.SnapshotInfo{Err: errors.New("full"), Trimmed: &stream.Trimmed{}})
	have := values(t, registry)
	for name, want := range map[string]float64{
		"tilefence_tile_refreshes_total":                          1,
		"tilefence_tile_commit_seconds{durability=write-through}": 1,
		"tilefence_tile_commit_seconds{durability=checkpointed}":  0,
		"tilefence_tile_committed_bytes_total":                    300,
		"tilefence_tile_journal_seconds":                          1,
		"tilefence_tile_confirm_seconds":                          0,
		"tilefence_tile_commit_refusals_total{reason=stale}":      1,
		"tilefence_tile_commit_refusals_total{reason=other}":      1,
		"tilefence_tile_trims_total{held_by=relay}":               1,
		"tilefence_tile_trims_total{held_by=snapshot}":            1,
		"tilefence_tile_expired_marks_total{consumer=relay}":      1,
		"tilefence_tile_trimmed_entries_total":                    4,
		"tilefence_tile_snapshots_total{result=failed}":           1,
	} {
		got, exists := have[name]
		assert.True(t, exists, "%s", name)
		assert.InDelta(t, want, got, 0, "%s", name)
	}
}

type fixed[S any] struct{ stats S }

func (f fixed[S]) Stats() S { return f.stats }

// Sources of one type are one metric: sums of counts, the worst of the rest.
func TestSourcesAreJoined(t *testing.T) {
	registry, m := fresh(t)
	early, late := time.Unix(100, 0), time.Unix(200, 0)
	require.NoError(t, Collect(m, fixed[bridge.Stats]{bridge.Stats{Batches: 2, Lag: time.Second,
		Dropped: bridge.Drops{Fenced: 1}}}, nil))
	require.NoError(t, Collect(m, fixed[bridge.Stats]{bridge.Stats{Batches: 3, Lag: 2 * time.Second}}, nil))
	require.NoError(t, Collect(m, fixed[share.Stats]{share.Stats{LastBeat: late}}, prometheus.Labels{"group": "x"}))
	require.NoError(t, Collect(m, fixed[share.Stats]{share.Stats{LastBeat: early}}, prometheus.Labels{"group": "x"}))
	require.NoError(t, Collect(m, fixed[share.Stats]{share.Stats{LastBeat: late}}, prometheus.Labels{"group": "y"}))
	have := values(t, registry)
	assert.InDelta(t, 5, have["tilefence_bridge_batches_total"], 0)
	assert.InDelta(t, 2, have["tilefence_bridge_lag_seconds"], 0)
	assert.InDelta(t, 1, have["tilefence_bridge_dropped_total{reason=fenced}"], 0)
	assert.InDelta(t, 100, have["tilefence_share_last_beat_timestamp_seconds{group=x}"], 0)
	assert.InDelta(t, 200, have["tilefence_share_last_beat_timestamp_seconds{group=y}"], 0)
}

func TestStatsOfAnotherShapeAreRefused(t *testing.T) {
	_, m := fresh(t)
	require.ErrorIs(t, Collect(m, fixed[int]{}, nil), fence.ErrInvalidArgument)
	require.ErrorIs(t, Collect(m, fixed[struct{ Name string }]{}, nil), fence.ErrInvalidArgument)
	require.ErrorIs(t, Collect(m, fixed[struct{ In struct{ N int } }]{}, nil), fence.ErrInvalidArgument)
}

// A source that cannot be read is left out, and the rest is served.
func TestAnUnreadableSourceIsLeftOut(t *testing.T) {
	registry, m := fresh(t)
	require.NoError(t, m.addSource(reflect.TypeFor[bridge.Stats](), "tilefence_bridge",
		func() (reflect.Value, error) { return reflect.Value{}, errors.New("away") }, nil))
	require.NoError(t, Collect(m, fixed[share.Stats]{}, nil))
	values(t, registry)
	have := values(t, registry)
	assert.GreaterOrEqual(t, have["tilefence_scrape_errors_total"], 1.)
	assert.Contains(t, have, "tilefence_share_members")
	assert.NotContains(t, have, "tilefence_bridge_batches_total")
}

// Hooks run on many tick loops while Prometheus asks and servers are added.
func TestConcurrentUse(t *testing.T) {
	registry, m := fresh(t)
	const loops, ticks = 4, 500
	var all sync.WaitGroup
	for range loops {
		all.Go(func() {
			var h tile.Hooks
			Attach(m, &h)
			for range ticks {
				h.Ticked(tile.TickInfo{Intents: 1, Took: time.Millisecond})
			}
			assert.NoError(t, Collect(m, fixed[bridge.Stats]{bridge.Stats{Batches: 1}}, nil))
		})
	}
	all.Go(func() {
		for range 20 {
			_, err := registry.Gather()
			assert.NoError(t, err)
		}
	})
	all.Wait()
	have := values(t, registry)
	require.InDelta(t, loops*ticks, have["tilefence_tile_intents_total"], 0)
	require.InDelta(t, loops, have["tilefence_bridge_batches_total"], 0)
}

// playTick calls the hooks as a tick with events does.
func playTick(h *tile.Hooks) {
	h.Committed(tile.CommitInfo{Bytes: 2048, Took: time.Millisecond, Durability: tile.Replicated,
		Confirming: time.Millisecond})
	h.Ticked(tile.TickInfo{Intents: 3, Events: 5, Took: 2 * time.Millisecond, Resolve: time.Millisecond})
}

func silent() tile.Hooks {
	return tile.Hooks{Ticked: func(tile.TickInfo) {}, Committed: func(tile.CommitInfo) {}}
}

func TestATickAllocatesNothing(t *testing.T) {
	_, m := fresh(t)
	h := silent()
	Attach(m, &h)
	require.Zero(t, testing.AllocsPerRun(100, func() { playTick(&h) }))
}

// BenchmarkTick is the cost of a tick's hooks, without metrics and with them, from one tick loop and from all cores.
func BenchmarkTick(b *testing.B) {
	registry := prometheus.NewRegistry()
	m, err := New(registry)
	require.NoError(b, err)
	without, with := silent(), silent()
	Attach(m, &with)
	for name, h := range map[string]*tile.Hooks{"metrics=off": &without, "metrics=on": &with} {
		b.Run(name+"/loops=one", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				playTick(h)
			}
		})
		b.Run(name+"/loops=all", func(b *testing.B) {
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					playTick(h)
				}
			})
		})
	}
}

// BenchmarkScrape is the cost of a scrape of everything.
func BenchmarkScrape(b *testing.B) {
	registry := everything(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
