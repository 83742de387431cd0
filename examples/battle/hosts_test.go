package main

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// deploy starts every actor but the bots, on embedded back ends, and waits until all tiles are served and
// followed.
func deploy(t *testing.T, args ...string) *deployment {
	args = append([]string{"-stack", "embedded", "-listen", "127.0.0.1:0", "-clients", "0"}, args...)
	o, err := parse(args, io.Discard)
	require.NoError(t, err)
	logged := &screen{}
	ctx, p, err := newPlan(t.Context(), o, t.TempDir(), slog.New(slog.NewTextHandler(logged, nil)), io.Discard)
	require.NoError(t, err)
	t.Cleanup(p.backends.close)
	d := &deployment{plan: p}
	stop, err := d.run()
	require.NoError(t, err)
	t.Cleanup(func() {
		assert.NoError(t, failed(ctx))
		stop()
	})
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(logged)
		}
		for _, e := range d.meters.Log.After(0) {
			if t.Failed() {
				t.Log(time.UnixMilli(e.At), e.Text)
			}
		}
		for _, h := range d.hosts.all() {
			for _, s := range h.Host().Status() {
				if t.Failed() {
					t.Logf("%s: tile %s %s, owner %s, dead %t", h.Contact(), s.Tile, s.State, s.Owner.Contact,
						h.line.Is(faultinject.Dead))
				}
			}
		}
	})
	waittest.Until(t, func() bool {
		for _, id := range d.world {
			for _, h := range d.hosts.all() {
				s := h.status(id)
				if s.State != tile.Serving && (s.State != tile.Following || !s.Owner.Present()) {
					return false
				}
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond, "not every tile is served and followed")
	return d
}

// TestMembersHearOfADeath: the followers of a killed host's tiles go after them when they hear of its death,
// long before the silence of four ticks would tell them.
func TestMembersHearOfADeath(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "2", "-hosts", "2", "-tick", "4s")
	var killed *host
	waittest.Until(t, func() bool {
		killed = d.hosts.owner(d.world[0])
		return killed != nil
	}, 30*time.Second, 20*time.Millisecond, "the tile moves without an end")
	d.logger.Info("test", "kills", killed.Contact())
	d.hosts.kill(killed)
	waittest.Until(t, func() bool {
		for _, e := range d.meters.Log.After(0) {
			if strings.Contains(e.Text, "heard that "+killed.Contact()+" is dead, and goes after ") {
				return true
			}
		}
		return false
	}, 30*time.Second, 20*time.Millisecond, "no member heard of the death")
	waittest.Until(t, func() bool { return d.hosts.owner(d.world[0]) != nil }, 30*time.Second, 20*time.Millisecond)
}

// TestHandOvers: after one host was made the owner of everything, its tiles are handed over one at a time until
// they lie evenly, and those it gave away it follows.
func TestHandOvers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-tiles", "6", "-hosts", "3", "-tick", "100ms", "-balance-every", "1s")
	greedy := d.hosts.all()[0]
	for _, id := range d.world[1:] {
		if d.hosts.owner(id) != greedy {
			require.NoError(t, greedy.Host().TakeOver(id))
		}
	}
	count := func(h *host, in tile.State) (n int) {
		for _, id := range d.world {
			if h.status(id).State == in {
				n++
			}
		}
		return n
	}
	waittest.Until(t, func() bool { return count(greedy, tile.Serving) == 6 }, time.Minute, 10*time.Millisecond)
	waittest.Until(t, func() bool {
		for _, h := range d.hosts.all() {
			if count(h, tile.Serving) != 2 {
				return false
			}
		}
		return true
	}, time.Minute, 10*time.Millisecond, "the tiles still lie unevenly")
	waittest.Until(t, func() bool { return count(greedy, tile.Following) == 4 }, time.Minute, 10*time.Millisecond,
		"it keeps no warm copy of what it gave away")
	// A hand-over is counted after the taker serves.
	waittest.Until(t, func() bool {
		n, err := d.totals()
		return err == nil && n["tile_takeover_seconds/handed_over"] >= 4
	}, time.Minute, 10*time.Millisecond)
}

// TestTicksMayLastLonger: every pace of the options, in every class, leaves room for dilation, or needs none.
func TestTicksMayLastLonger(t *testing.T) {
	store, durable := memfence.New(), memcheckpoint.New()
	for _, tick := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, time.Hour} {
		o := &options{tick: tick}
		cfg := tile.Config{TickInterval: tick, SuspectAfter: o.silence(), Durability: tile.WriteThrough,
			Limits: tile.Limits{MaxDilation: o.maxDilation()}}
		_, err := cfg.WithDefaults(tile.Seams{Authority: memfence.NewAuthority(), Store: store,
			Log: memstream.New(store), Journal: durable, Checkpoint: durable.Get})
		require.NoError(t, err, "%v", tick)
		assert.Equal(t, tick <= 3*time.Second, cfg.MaxDilation > 1)
	}
}

// TestOperatorsQuestions: who owns what, since when, at which epoch, how often did it move; and the counters.
func TestOperatorsQuestions(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := play(t, "-stack", "embedded", "-tiles", "2", "-clients", "4", "-balance-every", "0", "-tick", "100ms")
	page := p.page
	before := p.watch(t, func(s statuspoller.Status) bool { return len(s.Tiles) == 2 && s.Tiles[0].Seq > 2 })
	p.takeOver(t, before.Tiles[0].Tile)
	got := p.watch(t, func(s statuspoller.Status) bool {
		return s.Tiles[0].Epoch > 1 && s.Tiles[0].Owner != before.Tiles[0].Owner && s.Tiles[0].State == "serving" &&
			s.Tiles[0].Mints > 0 && s.Tiles[1].Mints > 0
	})
	require.Len(t, got.Tiles, 2)
	moved, stayed := got.Tiles[0], got.Tiles[1]
	assert.Greater(t, moved.Epoch, fence.Epoch(1))
	assert.EqualValues(t, moved.Epoch, moved.Mints)
	assert.EqualValues(t, stayed.Epoch, stayed.Mints)
	assert.Greater(t, moved.Since, stayed.Since)
	assert.GreaterOrEqual(t, stayed.Since, began.Add(-time.Second).UnixMilli())
	assert.Greater(t, moved.Seq, before.Tiles[0].Seq)
	p.watch(t, func(s statuspoller.Status) bool { return s.Tiles[0].Floor != "" && s.Tiles[0].Followers == 2 })

	metrics := string(get(t, page+"metrics"))
	assert.Regexp(t, `\ntilefence_tile_transitions_total{to="serving"} ([3-9]|\d\d)`, metrics)
	assert.Regexp(t, `\ntilefence_tile_tick_seconds_count [1-9]`, metrics)
	assert.Regexp(t, `\ntilefence_tilehost_tiles{state="serving"} [1-9]`, metrics)
	p.end(t)
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := pageClient.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, url)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return body
}

// injectOnce injects one kind of fault into a deployment, and returns what the report says of it.
func injectOnce(t *testing.T, d *deployment, k faultinject.Kind) chaos.KindReport {
	r, err := d.chaos.Once(t.Context(), k.Title)
	require.NoError(t, err)
	require.Zero(t, d.chaos.Report().Unrecovered)
	return r
}

// TestOwnerCutOff: an owner that lives but reaches no other process loses its tiles, commits nothing to them when it is
// back, and is a member again, which hears of the others.
func TestOwnerCutOff(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "4", "-hosts", "3", "-tick", "100ms")
	for range 2 { // it is a host like the others afterwards
		k := injectOnce(t, d, faultinject.OwnerCutOff)
		assert.Positive(t, k.Detection, "another has taken the tiles")
	}
	stood := 0
	for _, e := range d.meters.Log.After(0) {
		if e.Kind == statuspoller.KindRefused || e.Kind == statuspoller.KindStoodDown {
			stood++
		}
	}
	assert.Positive(t, stood, "what was cut off has met its successors")
	for _, h := range d.hosts.all() {
		assert.Len(t, h.Members(), 4, "three hosts and the gateway see each other")
	}
}

// TestStormOfViewers: hundreds come at once, see their tiles, and leave.
func TestStormOfViewers(t *testing.T) {
	t.Parallel()
	d := deploy(t, "-chaos", "-tiles", "2", "-tick", "100ms")
	assert.Positive(t, injectOnce(t, d, faultinject.ViewerStorm).Count)
	assert.GreaterOrEqual(t, d.poller.Relay.Stats().Connected, uint64(chaos.Viewers))
}

// TestDynamoDBThrottled: while DynamoDB refuses everything the tiles go on, and the ledger and the checkpointer do
// afterwards.
func TestDynamoDBThrottled(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	d := deploy(t, "-stack", "local", "-chaos", "-tiles", "2", "-tick", "100ms")
	k := injectOnce(t, d, faultinject.DurableThrottled)
	assert.Positive(t, k.Recovery)
	assert.Positive(t, d.backends.throttle.Refused.Load(), "something was refused")
}
