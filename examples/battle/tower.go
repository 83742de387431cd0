package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultline"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/tile"
)

// tower watches a battle for the page and the status line: who owns what comes from the owner hashes,
// as any process may read them, the rest from the meters and hosts of this process.
type tower struct {
	*plan
	contacts []string // of the tile hosts, for the take-over button
	hosts    *hosts   // those in this process, or nil
	relay    *relay.Relay
	chaos    *chaos // nil: nothing is broken on purpose
	bots     int

	mu     sync.Mutex
	status spectator.Status
}

// lookEvery is how often the tower looks.
const lookEvery = 250 * time.Millisecond

// Run implements tilefence.Server: it looks around until ctx ends.
func (t *tower) Run(ctx context.Context) error {
	var commits, events rate
	for {
		n, err := t.totals()
		if err != nil {
			return err
		}
		t.look(ctx, n, commits.of(n["tile_commit_seconds"]), events.of(n["tile_events_total"]))
		if !wait.For(ctx, lookEvery) {
			return nil
		}
	}
}

// rate turns a counter that is read at every look into a rate a second, averaged over about two seconds.
type rate struct{ last, average float64 }

func (r *rate) of(v float64) float64 {
	r.average += ((v-r.last)/lookEvery.Seconds() - r.average) / 8
	r.last = v
	return r.average
}

func (t *tower) look(ctx context.Context, n totals, commits, events float64) {
	old := t.Status()
	l, r := t.meters.clientLatency.Recent(), t.relay.Stats()
	var clients relayclient.Stats
	if f := t.fleet.Load(); f != nil {
		clients = f.stats()
	}
	s := spectator.Status{At: time.Now().UnixMilli(), Commits: commits, Events: events,
		Watchers: r.Clients, Bots: t.bots,
		Gaps:    clients.Gaps + r.Gaps,
		Repairs: clients.Repaired + uint64(n["relay_repair_seconds/tail"]+n["relay_repair_seconds/full"]),
		Latency: spectator.Latency{P50: l.P50, P99: l.P99, Samples: int(l.Count)}}
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

// lookAt brings one tile's status up to date: what is in force comes from the owner hash, the epochs' history from the
// authority, and how it goes from the processors of this process.
func (t *tower) lookAt(ctx context.Context, now spectator.TileStatus) spectator.TileStatus {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if o, err := t.backends.Store.Owner(bounded, now.Tile); err == nil && o.Present() {
		t.owned(ctx, &now, &o)
	}
	now.Processors, now.State, now.Heat, now.Followers = nil, "", 0, 0
	for _, h := range t.hosts.all() {
		st := h.status(now.Tile)
		switch flows := h.line.Is(faultline.Flowing); {
		case h.Contact() == now.Owner:
			now.State, now.Heat = st.State.String(), st.Heat
		case flows && st.State == tile.Following:
			now.Followers++
		}
		if st.State == 0 || st.State == tile.Stopped || st.State == tile.StoodDown || st.State == tile.Following {
			continue // it has no part in what is decided now
		}
		now.Processors = append(now.Processors,
			spectator.Processor{Contact: h.Contact(), State: st.State.String(), Epoch: st.Epoch})
		if st.State == tile.Serving && h.Contact() == now.Owner && h.line.Is(faultline.Flowing) {
			if d, err := h.state(bounded, now.Tile); err == nil {
				now.Digest, now.DigestSeq = d.Digest, d.Seq
			}
		}
	}
	return now
}

// mintsWithin is how long the authority may take: it may be paused, and the page goes on without it.
const mintsWithin = 100 * time.Millisecond

// owned notes what an owner hash says, and, once for each epoch, what the authority does. The authority may be ahead:
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
	now.Owner, now.Epoch, now.Seq, now.Tick = o.Contact, o.Epoch, o.Position.Seq, o.Tick
	now.Position = o.Position.String()
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
		s.Chaos = t.chaos.status()
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

// askToTake asks the inspector of one host to take a tile over.
func (t *tower) askToTake(ctx context.Context, next string, id fence.TileID) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second) // it may be paused, and then never answers
	defer cancel()
	address := t.secure.url("http", next+"/inspect/takeover?tile="+id.String())
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, nil)
	if err != nil {
		return err
	}
	response, err := t.secure.actor().Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusNoContent {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status alone will do
		return fmt.Errorf("%s: %s", next, strings.TrimSpace(string(why)))
	}
	return nil
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
		trouble = t.chaos.line()
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
	for began := time.Now(); ; {
		select {
		case <-ctx.Done():
			t.say("%s", strings.TrimSuffix("\n", after))
			return nil
		case <-time.After(every):
			t.say("%s%s%s", before, t.line(time.Since(began)), after)
		}
	}
}
