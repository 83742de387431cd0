package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/tile"
)

// tower watches a battle for the page and the status line: who owns what comes from the inspectors of the hosts, the
// rest from the meters and hosts of this process.
type tower struct {
	*plan
	contacts []string // of the tile hosts
	hosts    *hosts   // those in this process, or nil
	relay    *relay.Relay
	chaos    *chaos.Runner // nil: nothing is broken on purpose
	bots     int

	lookout lookout
	trails  map[fence.TileID]*trail // of Run

	mu     sync.Mutex
	status spectator.Status
}

// lookEvery is how often the tower looks.
const lookEvery = 250 * time.Millisecond

// Run implements tilefence.Server: it looks around until ctx ends.
func (t *tower) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { t.lookout.run(ctx, t.contacts, t.secure) })
	defer asking.Wait()
	defer stop()
	t.trails = map[fence.TileID]*trail{}
	var r rates
	for {
		n, err := t.totals()
		if err != nil {
			return err
		}
		t.look(ctx, n, &r)
		if !wait.For(ctx, lookEvery) {
			return nil
		}
	}
}

// rates are those of what the page shows.
type rates struct{ commits, events, bytes, frames rate }

// rate turns a counter that is read at every look into a rate a second, averaged over about two seconds.
type rate struct{ last, average float64 }

func (r *rate) of(v float64) float64 {
	r.average += ((v-r.last)/lookEvery.Seconds() - r.average) / 8
	r.last = v
	return r.average
}

func (t *tower) look(ctx context.Context, n totals, per *rates) {
	old := t.Status()
	l, r := t.meters.players.Latency.Recent(), t.relay.Stats()
	var clients relayclient.Stats
	if f := t.fleet.Load(); f != nil {
		clients = f.Stats()
	}
	s := spectator.Status{At: time.Now().UnixMilli(), Watchers: r.Clients, Bots: t.bots,
		Commits: per.commits.of(n["tile_commit_seconds"]), Events: per.events.of(n["tile_events_total"]),
		ColdReads: n.count("relay_repairs_total"), StaleDrops: n.count("relay_stale_drops_total"),
		SupersededTails: n.count("bridge_dropped_total/superseded", "relay_lower_epoch_total"),
		DeadLetters:     n.count("bridge_dead_letters_total"), Ledger: n.settled(),
		Gaps:    clients.Gaps + r.Gaps,
		Repairs: clients.Repaired + uint64(n["relay_repair_seconds/tail"]+n["relay_repair_seconds/full"]),
		Latency: spectator.Latency{P50: l.P50, P99: l.P99, Samples: int(l.Count)}}
	bytes, frames := per.bytes.of(float64(clients.Bytes)), per.frames.of(float64(t.meters.players.Frames.Load()))
	if frames > 1 {
		s.BytesPerTick = bytes / frames
	}
	for i, id := range t.world {
		before := spectator.TileStatus{Tile: id}
		if i < len(old.Tiles) {
			before = old.Tiles[i]
		}
		s.Tiles = append(s.Tiles, t.lookAt(ctx, before))
	}
	t.mu.Lock()
	t.status = s
	t.mu.Unlock()
}

// lookAt brings one tile's status up to date: what the hosts' inspectors say, the epochs' history from the authority,
// and the digest of the owner's state if it is a host of this process. Where no inspector knows the tile, as with a
// page that was told of no hosts, its owner hash says who owns it.
func (t *tower) lookAt(ctx context.Context, now spectator.TileStatus) spectator.TileStatus {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	o := t.lookout.shows(&now, t.contacts)
	if o.Epoch == 0 {
		var err error
		if o, err = t.backends.Store.Owner(bounded, now.Tile); err == nil && o.Present() {
			now.Position, now.Seq = o.Position.String(), o.Position.Seq
		}
	}
	if o.Contact != "" && o.Epoch >= now.Epoch { // a follower may be behind
		t.owned(ctx, &now, &o)
	}
	if now.State == tile.Serving.String() {
		if t.trails[now.Tile] == nil {
			t.trails[now.Tile] = new(trail)
		}
		t.trails[now.Tile].note(now.Seq, now.Tick)
		now.Lost = t.trails[now.Tile].after(now.Seq-now.AtRisk, now.Tick)
	}
	for _, h := range t.hosts.all() {
		if now.State == tile.Serving.String() && h.Contact() == now.Owner && h.line.Is(faultinject.Flowing) {
			if d, err := h.state(bounded, now.Tile); err == nil {
				now.Digest, now.DigestSeq = d.Digest, d.Seq
			}
		}
	}
	return now
}

// mintsWithin is how long the authority may take: it may be paused, and the page goes on without it.
const mintsWithin = 100 * time.Millisecond

// owned notes who owns a tile, and, once for each epoch, what the authority does. The authority may be ahead:
// the tile is then changing hands.
func (t *tower) owned(ctx context.Context, now *spectator.TileStatus, o *fence.Owner) {
	switch before := now.Epoch; {
	case before == 0:
		t.meters.log.add(spectator.KindInstalled, o.Tile, o.Contact, o.Epoch,
			"%s owns the tile under epoch %d", o.Contact, o.Epoch)
	case o.Epoch != before:
		now.Since, now.Mints = 0, 0
		t.meters.log.add(spectator.KindInstalled, o.Tile, o.Contact, o.Epoch,
			"epoch %d → %d: %s took over from %s", before, o.Epoch, o.Contact, now.Owner)
	}
	now.Owner, now.Epoch, now.Tick = o.Contact, o.Epoch, o.Tick
	if now.Mints > 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, mintsWithin)
	defer cancel()
	if g, err := t.backends.Authority.Lookup(bounded, now.Tile); err == nil && g.Epoch == now.Epoch {
		now.Since, now.Mints = g.Minted.UnixMilli(), g.Mints
	}
}

// Status implements spectator.API.
func (t *tower) Status() spectator.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Routing = t.meters.routing()
	s.Lobby, s.Pilots = t.lobby.shows(), t.pilot.status()
	if t.chaos != nil {
		s.Chaos = chaosStatus(t.chaos, t.options.seed)
	}
	return s
}

// Events implements spectator.API.
func (t *tower) Events(after uint64) []spectator.Event { return t.meters.log.after(after) }

// TakeOver implements spectator.API: it asks the host after the owner to take the tile, or the first after
// that which answers.
func (t *tower) TakeOver(ctx context.Context, id fence.TileID) error {
	if len(t.contacts) < 2 {
		return errors.New("there is no other tile host: start a second one")
	}
	o, err := t.backends.Store.Owner(ctx, id)
	if err != nil {
		return err
	}
	at := slices.Index(t.contacts, o.Contact)
	for i := range len(t.contacts) - 1 {
		if err = t.askToTake(ctx, t.contacts[(at+1+i)%len(t.contacts)], id); err == nil {
			return nil
		}
	}
	return err
}

// moveWithin bounds a request to move a tile. Nothing else waits for it, and a host that has no processor answers late.
const moveWithin = 10 * time.Second

// askToTake asks the inspector of one host to take a tile over.
func (t *tower) askToTake(ctx context.Context, next string, id fence.TileID) error {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	return inspectorOf(next, t.secure).TakeOver(ctx, id)
}

// line is the status line.
func (t *tower) line(since time.Duration) string {
	s := t.Status()
	owned, epochs := 0, []fence.Epoch{}
	for _, ts := range s.Tiles {
		if ts.Epoch > 0 {
			owned, epochs = owned+1, append(epochs, ts.Epoch)
		}
	}
	slices.Sort(epochs)
	trouble := ""
	if t.chaos != nil {
		trouble = t.chaos.Line()
	}
	return fmt.Sprintf("%4.0fs  commits %.0f/s  watchers %d  commit→client p50 %.1f p99 %.1f ms  "+
		"tiles %d/%d  owner epochs %v%s", since.Seconds(), s.Commits, s.Watchers,
		s.Latency.P50, s.Latency.P99, owned, len(t.world), slices.Compact(epochs), trouble)
}

// showStatus prints a line about the battle: rewritten in place on a terminal, now and then elsewhere.
func (t *tower) showStatus(ctx context.Context) error {
	every, before, after := 5*time.Second, "", "\n"
	if f, ok := t.errs.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			every, before, after = 500*time.Millisecond, "\r\x1b[K", ""
		}
	}
	for began := time.Now(); wait.For(ctx, every); {
		t.say("%s%s%s", before, t.line(time.Since(began)), after)
	}
	t.say("%s", strings.TrimSuffix("\n", after))
	return nil
}
