//go:build browser && unix

package spectator_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/chromium"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// These tests need a browser, so they run only when asked for:
//
//	go test -tags browser ./examples/battle/spectator

// recording is a game as a watcher gets it: the snapshot it starts from, every tick's batch, and the
// digest after each.
type recording struct {
	Snapshot []byte   `json:"snapshot"`
	Payloads [][]byte `json:"payloads"`
	Digests  []string `json:"digests"`
}

// record lets bots play until ships have been lost and have returned, and some have left the tile. Those enter it again
// at the next tick, but for one that finds that its owner has another ship.
func record(t *testing.T, ticks int) recording {
	world := flower(t, 37.77, -122.42)
	ground, err := game.GroundOf(world[0], world)
	require.NoError(t, err)
	rules, err := game.NewRules(ground)
	require.NoError(t, err)
	view, err := game.NewView(ground)
	require.NoError(t, err)
	var bots []*game.Bot
	for i := range 200 {
		bots = append(bots, game.NewBot(fmt.Sprint("bot", i), ground, 1, &game.BotConfig{Sails: 0.5}))
	}
	var r recording
	in := tile.Inputs{Room: func(fence.TileID, int) int { return 100 }}
	kinds := map[game.EventKind]int{}
	for tick := fence.Tick(1); int(tick) <= ticks; tick++ {
		var intents []tile.Intent
		for i, b := range bots {
			if o, ok := b.Decide(view, tick); ok {
				intents = append(intents, tile.Intent{Actor: fmt.Sprint("bot", i), ActionID: fmt.Sprint("action",
					tick, i), Body: o.Encode()})
			}
		}
		in.Intents = intents
		out := rules.Play(tick, in)
		events := out.Events
		in.Arrivals, in.Returns = nil, nil
		for _, d := range out.Departures {
			in.Arrivals = append(in.Arrivals, tile.Arrival{Transfer: stream.Transfer{Departure: d}})
		}
		if len(out.Departures) > 0 && kinds[game.Sunk] == 0 {
			in.Returns = []tile.Return{{Transfer: in.Arrivals[0].Transfer}, {Transfer: in.Arrivals[0].Transfer}}
		}
		for _, e := range events {
			kinds[game.EventKind(e[0])]++
		}
		if int(tick) == ticks-1 {
			events = append([][]byte{rules.Dilated(1.5)}, events...)
		}
		batch := stream.Batch{Events: events}
		batch.Divide(rules.Area)
		payload, _, err := batch.Encode()
		require.NoError(t, err)
		require.NoError(t, rules.Apply(tick, batch.Events))
		require.NoError(t, view.Apply(&fence.Entry{Tick: tick, Payload: payload}))
		if int(tick) == ticks/2 {
			r.Snapshot, err = rules.Snapshot()
			require.NoError(t, err)
		} else if int(tick) > ticks/2 {
			r.Payloads, r.Digests = append(r.Payloads, payload), append(r.Digests, view.Digest().String())
		}
	}
	if ticks > 100 {
		require.Positive(t, kinds[game.Departed])
		require.Positive(t, kinds[game.Sunk])
	}
	return r
}

// spans are the areas of a tile as the page gets them.
func spans(t *testing.T) string {
	data, err := json.Marshal(newWorld(t, flower(t, 37.77, -122.42)[0]).Tiles[0].Spans)
	require.NoError(t, err)
	return string(data)
}

// blank opens the page over a canned API and no relay: a place to run its modules in.
func blank(t *testing.T) *chromium.Tab {
	s, _ := serve(t, &canned{})
	return chromium.Open(t, s.URL)
}

func TestPageFoldsLikeTheGame(t *testing.T) {
	const ticks = 120
	r := record(t, ticks)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	var got struct {
		Digests []string
		Pace    float64
	}
	blank(t).Eval(fmt.Sprintf(`(async (r, spans) => {
		const { Fleet, digest } = await import("/assets/fleet.js");
		const bytes = (s) => Uint8Array.from(atob(s), (c) => c.charCodeAt(0));
		const fleet = new Fleet(spans), digests = [];
		fleet.restore(bytes(r.snapshot));
		for (const [i, p] of r.payloads.entries()) {
			fleet.apply(%d + i, bytes(p));
			digests.push(await digest(fleet.encode()));
		}
		return { digests, pace: fleet.pace };
	})(%s, %s)`, ticks/2+1, data, spans(t)), &got)
	assert.Equal(t, r.Digests, got.Digests)
	assert.InDelta(t, 1.5, got.Pace, 0)
}

// TestPageRefusesDamagedBytes damages what the page is sent, one byte at a time: it folds or throws a
// WireError, and nothing else.
func TestPageRefusesDamagedBytes(t *testing.T) {
	r := record(t, 20)
	data, err := json.Marshal(r)
	require.NoError(t, err)
	seed := rand.Uint32()
	var got struct{ Refused, Folded, Other int }
	blank(t).Eval(fmt.Sprintf(`(async (r, seed, spans) => {
		const { Fleet } = await import("/assets/fleet.js");
		const { WireError } = await import("/assets/wire.js");
		const bytes = (s) => Uint8Array.from(atob(s), (c) => c.charCodeAt(0));
		const random = (n) => (seed = (seed * 1664525 + 1013904223) >>> 0) %% n;
		const got = { Refused: 0, Folded: 0, Other: 0 };
		for (let i = 0; i < 4000; i++) {
			let snapshot = bytes(r.snapshot), payload = bytes(r.payloads[0]);
			const victim = random(2) ? snapshot : payload;
			victim[random(victim.length)] = random(256);
			if (random(4) === 0) payload = payload.subarray(0, random(payload.length));
			const fleet = new Fleet(spans);
			try {
				fleet.restore(snapshot);
				fleet.apply(11, payload);
				got.Folded++;
			} catch (err) {
				got[err instanceof WireError ? "Refused" : "Other"]++;
			}
		}
		return got;
	})(%s, %d, %s)`, data, seed, spans(t)), &got)
	t.Logf("seed %d: %+v", seed, got)
	assert.Zero(t, got.Other)
	assert.Positive(t, got.Refused)
}

// TestPageAsksForWhatItMissed gives the page's client a Sync, a frame, a duplicate and a frame too many,
// in the relay's own encoding, and looks at what it asks for.
func TestPageAsksForWhatItMissed(t *testing.T) {
	const id fence.TileID = 0x85283083fffffff
	var frames []*relaypb.Frame
	var at fence.Position
	for seq := fence.Seq(1); seq <= 5; seq++ {
		e := fence.NewEntry(fence.Entry{Tile: id, Kind: fence.KindBatch, Prev: at, Tick: fence.Tick(seq),
			Position: fence.Position{Epoch: 3, Seq: seq}})
		frames = append(frames, relaypb.FromEntry(&e))
		at = e.Position
	}
	text := func(m *relaypb.ServerMessage) string {
		m.Tile = id.String()
		b, err := relaypb.JSON.Append(nil, m)
		require.NoError(t, err)
		return string(b)
	}
	frame := func(n int) string {
		return text(&relaypb.ServerMessage{Body: &relaypb.ServerMessage_Frame{Frame: frames[n-1]}})
	}
	syncTo := func(s *relaypb.Sync) string {
		return text(&relaypb.ServerMessage{Body: &relaypb.ServerMessage_Sync{Sync: s}})
	}
	old := &relaypb.Sync{Replace: true, Position: &relaypb.Position{Epoch: 1, Seq: 2, Chain: 7}}
	messages, err := json.Marshal([]string{
		syncTo(&relaypb.Sync{Replace: true, Tail: frames[:1], Position: frames[0].Position}),
		frame(2), frame(2), frame(4), frame(5),
		syncTo(&relaypb.Sync{From: frames[1].Position, Tail: frames[2:4], Position: frames[3].Position}),
		frame(5),
		syncTo(old), // of a relay that is cut off
	})
	require.NoError(t, err)
	var got struct {
		Sent   []json.RawMessage
		Seqs   []uint64
		Counts map[string]int
	}
	blank(t).Eval(fmt.Sprintf(`(async (messages, id) => {
		const { Client } = await import("/relay/client.js");
		const got = { Sent: [], Seqs: [] }, no = () => {};
		const feed = new Client("ws://x", [{ id, areas: [1, 2, 3] }], { moved: (_, p) => got.Seqs.push(p.seq) },
			{ connect: no, send: (m) => got.Sent.push(JSON.parse(m)) });
		feed.opened();
		for (const m of messages) feed.message(m, 1);
		await new Promise((r) => setTimeout(r, 300)); // longer than the first pause
		got.Counts = feed.counts;
		return got;
	})(%s, %q)`, messages, id), &got)
	assert.Equal(t, []uint64{0, 1, 2, 3, 4, 5}, got.Seqs)
	assert.Equal(t, 1, got.Counts["gaps"])
	assert.Equal(t, 1, got.Counts["repairs"])
	assert.Equal(t, 1, got.Counts["duplicates"])
	assert.Equal(t, 1, got.Counts["stale"], "and nothing of it was applied")
	require.Len(t, got.Sent, 3, "one Subscribe, a Resync for the gap, one for the relay that is behind")
	for i, raw := range got.Sent {
		m := &relaypb.ClientMessage{}
		require.NoError(t, relaypb.JSON.Decode(raw, m), "%s", raw)
		if i == 0 {
			assert.Equal(t, []string{id.String()}, m.GetSubscribe().GetTiles())
		} else {
			held := frames[1]
			if i == 2 {
				held = frames[4]
			}
			assert.Equal(t, held.Position.Fence(), m.GetResync().GetPosition().Fence())
			assert.EqualValues(t, 3, m.GetResync().GetEpochFloor())
		}
	}
}

// theatre runs two tiles over in-process back ends, with a relay and the page.
type theatre struct {
	t     *testing.T
	seams tile.Seams
	tiles []fence.TileID

	mu     sync.Mutex
	owners map[fence.TileID]*tile.TileProcessor
	events []statuspoller.Event
}

func (th *theatre) say(kind statuspoller.Kind, id fence.TileID, owner string, epoch fence.Epoch, text string) {
	th.mu.Lock()
	defer th.mu.Unlock()
	th.events = append(th.events, statuspoller.Event{ID: uint64(len(th.events) + 1), At: time.Now().UnixMilli(),
		Kind: kind,
		Tile: id, Owner: owner, Epoch: epoch, Text: text})
}

// cast has a server run a tile; with a former owner by taking it over.
func (th *theatre) cast(ctx context.Context, id fence.TileID, contact string, takeOver bool) {
	ground, err := game.GroundOf(id, nil)
	require.NoError(th.t, err)
	rules, err := game.NewRules(ground)
	require.NoError(th.t, err)
	cfg := &tile.Config{TickInterval: 100 * time.Millisecond, TakeOver: takeOver}
	cfg.Hooks.Transition = func(i tile.TransitionInfo) {
		switch i.To {
		case tile.Serving:
			th.say(statuspoller.KindInstalled, id, contact, i.Epoch, contact+" took over")
		case tile.StoodDown:
			th.say(statuspoller.KindRefused, id, contact, i.Epoch, contact+" was refused")
			th.say(statuspoller.KindStoodDown, id, contact, i.Epoch, contact+" stood down")
		}
	}
	p, err := tile.New(id, contact, th.seams, rules, cfg)
	require.NoError(th.t, err)
	th.mu.Lock()
	th.owners[id] = p
	th.mu.Unlock()
	go func() { _ = p.Run(ctx) }()
	go func() {
		for n := 0; ctx.Err() == nil; n++ { // something to see: a new ship with every tick
			_, _ = p.Submit(ctx, tile.Intent{Tile: id, Actor: fmt.Sprint(contact, n),
				Body: game.Order{Kind: game.Spawn, Cell: uint16(n * 7 % ground.Len())}.Encode()})
		}
	}()
}

func (th *theatre) Status() statuspoller.Status {
	th.mu.Lock()
	defer th.mu.Unlock()
	s := statuspoller.Status{}
	for _, id := range th.tiles {
		p := th.owners[id]
		st := p.Status()
		ts := statuspoller.TileStatus{Tile: id, Owner: st.Contact, Epoch: st.Epoch, Seq: st.Position.Seq, Tick: st.Tick}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = p.Inspect(ctx, func(r tile.Rules, at fence.Position) { // without it the page shows no digest
			ts.Digest, ts.DigestSeq = r.(*game.Rules).Digest().String(), at.Seq
		})
		cancel()
		s.Tiles = append(s.Tiles, ts)
	}
	return s
}

func (th *theatre) Events(after uint64) []statuspoller.Event {
	th.mu.Lock()
	defer th.mu.Unlock()
	return append([]statuspoller.Event(nil), th.events[min(after, uint64(len(th.events))):]...)
}

func (th *theatre) TakeOver(_ context.Context, id fence.TileID) error {
	th.cast(th.t.Context(), id, "bob:7002", true)
	return nil
}

// set changes what the page gets, and adds an event.
func (c *canned) set(s statuspoller.Status, e statuspoller.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status, c.events = s, append(c.events, e)
}

// TestPageShowsAFault: what is broken, where it hurts, and how it ended.
func TestPageShowsAFault(t *testing.T) {
	api := &canned{}
	s, tiles := serve(t, api)
	fault := statuspoller.Fault{ID: 3, Kind: "owner killed", Means: "Somebody has to take over.", Host: "ann:7001",
		Suffer: tiles[:1], Began: time.Now().UnixMilli()}
	api.set(statuspoller.Status{Tiles: []statuspoller.TileStatus{{Tile: tiles[0], Owner: "ann:7001", Epoch: 1},
		{Tile: tiles[1], Owner: "bob:7002", Epoch: 1}},
		Chaos: &statuspoller.Chaos{Seed: 9, Faults: 3, Fault: &fault,
			Systems: []statuspoller.System{{Name: "authority"},
				{Name: "coordination", Nodes: []string{"coord-1", "coord-2"}}}}},
		statuspoller.Event{ID: 1, Kind: statuspoller.KindFault, Fault: 3, Owner: "ann:7001",
			Text: "owner killed (ann:7001)"})
	b := chromium.Open(t, s.URL)
	b.Until(`document.querySelector("#chaos").dataset.state === "hit"`)
	b.Until(`document.querySelector("#chaos-kind").textContent === "owner killed"`)
	b.Until(`document.querySelector("#chaos-state").textContent === "1 tile not well yet"`)
	b.Until(`document.querySelector("#owners .hurt em").textContent === "killed"`)
	b.Until(`document.querySelectorAll("#systems i").length === 3`)
	b.Until(`document.querySelector("#log li.fault .number").textContent === "fault 3"`)

	over := fault
	over.Suffer, over.Healed, over.Over, over.Recovery, over.Summary = nil, fault.Began+10, fault.Began+20, 2100,
		"1 tile well again after 2.1 s"
	api.set(statuspoller.Status{Tiles: api.Status().Tiles,
		Chaos: &statuspoller.Chaos{Seed: 9, Faults: 3, Fault: &over}},
		statuspoller.Event{ID: 2, Kind: statuspoller.KindRecovered, Fault: 3, Text: over.Summary})
	b.Until(`document.querySelector("#chaos").dataset.state === "over"`)
	b.Until(`document.querySelector("#chaos-time").textContent === "✓ 2.1 s"`)
	b.Until(`document.querySelectorAll("#owners .hurt").length === 0`)
	b.Until(`document.querySelector("#log li.fault.over p.recovered").textContent.includes("well again")`)

	lost := fence.Tick(8)
	api.set(statuspoller.Status{Tiles: []statuspoller.TileStatus{{Tile: tiles[0], Owner: "bob:7002", Epoch: 2, Mints: 2,
		State: "serving", Dilation: 1.5, Floor: "checkpoint", AtRisk: 7, Lost: &lost,
		Since: time.Now().Add(-65 * time.Second).UnixMilli()}}}, statuspoller.Event{ID: 3})
	b.Eval(`document.querySelector("#ownership-open").click()`, nil)
	b.Until(`[...document.querySelectorAll("#ownership-rows td")].map((c) => c.textContent).join("|")` +
		`.startsWith("bob:7002|2|1 min 5 s|1×|serving · time × 1.5|")`)
	b.Until(`[...document.querySelectorAll("#ownership-rows tr:first-child td")].slice(-3).map((c) => c.textContent)` +
		`.join("|") === "checkpoint|7|8 ticks · 4.0 s"`)
	b.Until(`document.querySelector("#tiles .position").textContent.endsWith(" · time × 1.5")`)
}

// TestPageShowsStreams: how far the consumers are and who holds the floor, what would be lost, what was read and
// refused besides, the outcomes of actions, and what a client is sent.
func TestPageShowsStreams(t *testing.T) {
	api := &canned{}
	s, tiles := serve(t, api)
	b := chromium.Open(t, s.URL)
	text := func(id, want string) {
		t.Helper()
		b.Until(fmt.Sprintf("document.getElementById(%q).textContent === %q", id, want))
	}
	text("sent", "– of 600 bytes")
	text("n-cold", "–")
	b.Until(`document.getElementById("ledger").hidden`)

	number := func(n uint64) *uint64 { return &n }
	twelve, none := fence.Tick(12), fence.Tick(0)
	marks := []statuspoller.Mark{{Consumer: "bridge"}, {Consumer: "relay:a", Behind: 15},
		{Consumer: "checkpoint", Behind: 6}}
	api.set(statuspoller.Status{ColdReads: number(23), StaleDrops: number(4), SupersededTails: number(5),
		DeadLetters: number(0), Ledger: map[string]uint64{"applied": 90, "fizzled": 10}, BytesPerTick: 150,
		Tiles: []statuspoller.TileStatus{{Tile: tiles[0], State: "serving", Marks: marks, Floor: "relay:a", AtRisk: 6,
			Lost: &twelve}, {Tile: tiles[1], State: "serving", Lost: &none}}}, statuspoller.Event{ID: 1})
	text("sent", "150 of 600 bytes")
	b.Until(`document.getElementById("sent-bar").style.transform === "scaleX(0.25)"`)
	for id, want := range map[string]string{"n-cold": "23", "n-stale": "4", "n-tails": "5", "n-dead": "0",
		"risk-lost": "12 ticks · 6.0 s lost", "ledger-outcomes": "90 applied10 fizzled"} {
		text(id, want)
	}
	b.Until(`[...document.querySelectorAll("#ledger-bar i")].map((i) => i.offsetWidth).every((w, i, all) =>
		all.length === 2 && Math.abs(w - all[1 - i] * [9, 1 / 9][i]) < 10)`)
	b.Until(`[...document.querySelectorAll(".stream span")].slice(0, 2).map((s) => s.textContent).join("|") ===
		"12 ticks · 6.0 s|nothing"`)
	b.Until(`document.querySelector(".track .lost").style.width === "20%"`)
	b.Until(`document.querySelectorAll(".track .mark").length === 3`)
	b.Until(`document.querySelector(".track .mark.floor.relay").style.right === "50%"`)
	b.Until(`document.querySelector(".stream").title.includes("relay:a: 15 batches behind, holds the floor")`)

	api.set(statuspoller.Status{BytesPerTick: 900, Tiles: []statuspoller.TileStatus{{Tile: tiles[0], State: "serving",
		Marks: marks[:1], Floor: "bridge"}}}, statuspoller.Event{ID: 2})
	b.Until(`document.querySelectorAll(".meter.over").length === 1`)
	b.Until(`document.querySelectorAll(".track .mark").length === 1`)
	text("risk-lost", "–")
}

// staged starts two tiles, a relay and the page.
func staged(t *testing.T) (th *theatre, s *httptest.Server) {
	store := memfence.New()
	log, broker := memstream.New(store), memfanout.New()
	th = &theatre{t: t, owners: map[fence.TileID]*tile.TileProcessor{}, tiles: flower(t, 37.77, -122.42)[:2],
		seams: tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: log}}
	watched, err := relay.New(broker, log, relay.Public, nil)
	require.NoError(t, err)
	forward, err := bridge.New(log, broker, nil, th.tiles, nil)
	require.NoError(t, err)
	go func() { _ = watched.Run(t.Context()) }()
	go func() { _ = forward.Run(t.Context()) }()
	for _, id := range th.tiles {
		th.cast(t.Context(), id, "ann:7001", false)
	}
	mux := http.NewServeMux()
	mux.Handle("/view", watched.Handler())
	mux.Handle("/", spectator.Handler(newWorld(t, th.tiles...), th))
	s = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return th, s
}

// TestPageShowsAViewport follows a player, sees what that player sees and no more, and then everything again: with the
// owner's digest, so that areas that were left and opened again are what they should be.
func TestPageShowsAViewport(t *testing.T) {
	_, s := staged(t)
	b := chromium.Open(t, s.URL)
	b.Until(`document.querySelectorAll(".proof[data-state=same]").length === 2`)
	b.Eval(`document.querySelector("#follow").click()`, nil)
	b.Until(`/^(ann|bob):700\d\d+$/.test(document.querySelector("#player-name").textContent)`)
	b.Until(`/^[4-7] of 49 areas$/.test(document.querySelector("#player-areas").textContent)`)
	b.Until(`Number(document.querySelector("#player-whole").textContent) > 0`)
	b.Until(`Number(document.querySelector("#player-seen").textContent) <
		Number(document.querySelector("#player-whole").textContent)`)

	const positions = `[...document.querySelectorAll("#tiles .position")].map((p) => p.textContent)`
	for range 2 {
		b.Eval(`document.querySelector("#player-only").click()`, nil)
		b.Until(`document.querySelector("#player-only").getAttribute("aria-pressed") === "true"`)
		b.Until(`document.querySelectorAll(".proof[data-state=same]").length === 0`)
		b.Eval(`(async () => {
			await new Promise((r) => setTimeout(r, 600)); // what was under way, and a look of the panel
			window.before = `+positions+`;
		})()`, nil)
		b.Until(positions + `.filter((p, i) => p !== window.before[i]).length === 1`)
		b.Eval(`document.querySelector("#player-only").click()`, nil)
		b.Until(`document.querySelectorAll(".proof[data-state=same]").length === 2`)
	}
	b.Eval(`document.querySelector("#player-stop").click()`, nil)
	b.Until(`document.querySelector("#player").hidden`)
	_, errors := b.Noted()
	assert.Empty(t, errors)
}

func TestPageShowsATakeover(t *testing.T) {
	_, s := staged(t)
	b := chromium.Open(t, s.URL)
	b.Until(`document.querySelector("#link").dataset.state === "live"`)
	b.Until(`document.querySelectorAll(".proof[data-state=same]").length === 2`)
	b.Eval(`document.querySelector(".take").click()`, nil)
	b.Until(`document.querySelector("#tiles .owner").textContent === "bob:7002"`)
	b.Until(`document.querySelector("#tiles .epoch").textContent === "epoch 2"`)
	b.Until(`document.querySelector("#log li .epoch").textContent === "epoch 1 → 2"`)
	b.Until(`[...document.querySelectorAll("#log li:first-child p")].map((p) => p.className).join() === ` +
		`",refused,stood-down"`)
	b.Until(`document.querySelectorAll(".proof[data-state=same]").length === 2`)
	b.Until(`Number(document.querySelector("#page50").textContent) > 0`)

	requests, errors := b.Noted()
	assert.Empty(t, errors)
	home, err := url.Parse(s.URL)
	require.NoError(t, err)
	for _, r := range requests {
		u, err := url.Parse(r)
		require.NoError(t, err)
		if u.Scheme != "about" {
			assert.Equal(t, home.Host, u.Host, "the page asked another host: %s", r)
		}
	}
}

// TestPageShowsTheLobby: depth, seats and the reason of the ticket that waits longest; no card without a lobby.
func TestPageShowsTheLobby(t *testing.T) {
	api := &canned{}
	s, tiles := serve(t, api)
	b := chromium.Open(t, s.URL)
	b.Until(`document.getElementById("lobby").hidden`)
	api.set(statuspoller.Status{Lobby: &statuspoller.Lobby{Waiting: 3, Matching: 2, Seated: 7, Matches: 2, Workers: 2,
		Wait: statuspoller.Latency{P50: 1200, P99: 34_000, Samples: 7},
		Longest: &statuspoller.Ticket{ID: "x", Players: []string{"ann", "bob"}, Rating: 1500, Waited: 5100,
			Why: "a reason"},
		Tiles: []statuspoller.Seats{{Tile: tiles[0], Seats: 4, Used: 3, Serving: true}, {Tile: tiles[1], Seats: 4}}}},
		statuspoller.Event{})
	b.Until(`document.getElementById("lobby-longest").textContent === "ann and bob, rating 1500, 5.1 s: a reason"`)
	for id, want := range map[string]string{"lobby-waiting": "5", "lobby-seated": "7", "lobby-wait50": "1.2 s",
		"lobby-wait99": "34 s", "lobby-workers": "2 match workers"} {
		var got string
		b.Eval(`document.getElementById("`+id+`").textContent`, &got)
		assert.Equal(t, want, got, id)
	}
	var seats []int
	b.Eval(`[...document.querySelectorAll("#lobby-seats li")].map((li) => li.querySelectorAll("i.used").length)`,
		&seats)
	assert.Equal(t, []int{3, 0}, seats)
	b.Eval(`document.getElementById("ticket-button").click()`, nil) // there is no entrance here
	b.Until(`document.getElementById("ticket-state").textContent === "the lobby does not answer"`)
}
