package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay"
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

var _ spectator.API = (*tower)(nil)

// lookEvery is how often the tower looks.
const lookEvery = 250 * time.Millisecond

// Run implements tilefence.Server: it looks around until ctx ends.
func (t *tower) Run(ctx context.Context) error {
	var commits, events rate
	for {
		t.look(ctx, commits.perSecond(t.meters.commits.Load()), events.perSecond(t.meters.events.Load()))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(lookEvery):
		}
	}
}

// rate turns a counter into a rate over about two seconds.
type rate struct {
	at     []time.Time
	values []int64
}

func (r *rate) perSecond(v int64) float64 {
	now := time.Now()
	r.at, r.values = append(r.at, now), append(r.values, v)
	for len(r.at) > 2 && now.Sub(r.at[1]) > 2*time.Second {
		r.at, r.values = r.at[1:], r.values[1:]
	}
	d := now.Sub(r.at[0]).Seconds()
	if d == 0 {
		return 0
	}
	return float64(v-r.values[0]) / d
}

func (t *tower) look(ctx context.Context, commits, events float64) {
	old := t.Status()
	l := t.meters.clientLatency.recent()
	s := spectator.Status{At: time.Now().UnixMilli(), Commits: commits, Events: events, Watchers: int(t.meters.watchers.Load()), Bots: t.bots,
		Gaps: uint64(t.meters.clientGaps.Load()), Repairs: uint64(t.meters.clientRepairs.Load()),
		Latency: spectator.Latency{P50: l.P50, P99: l.P99, Samples: int(l.Count)}}
	r := t.relay.Stats()
	s.Watchers = r.Clients
	s.Gaps += r.Gaps
	s.Repairs += uint64(t.meters.relayRepairs.Load())
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

// lookAt brings one tile's status up to date.
func (t *tower) lookAt(ctx context.Context, now spectator.TileStatus) spectator.TileStatus {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	o, err := t.backends.Store.Owner(bounded, now.Tile)
	if err == nil && o.Present() {
		if o.Epoch != now.Epoch {
			now.Since = time.Now().UnixMilli()
			if now.Epoch != 0 {
				now.Moves++
				t.meters.log.add(spectator.KindInstalled, o.Tile, o.Contact, o.Epoch, "epoch %d → %d: %s took over from %s", now.Epoch, o.Epoch, o.Contact, now.Owner)
			} else {
				t.meters.log.add(spectator.KindInstalled, o.Tile, o.Contact, o.Epoch, "%s owns the tile under epoch %d", o.Contact, o.Epoch)
			}
		}
		now.Owner, now.Epoch, now.Seq, now.Tick = o.Contact, o.Epoch, o.Position.Seq, o.Tick
	}
	now.Processors = nil
	for _, h := range t.hosts.all() {
		st := h.status(now.Tile)
		if st.State == 0 || st.State == tile.Stopped || st.State == tile.StoodDown || st.State == tile.Following {
			continue // it has no part in what is decided now
		}
		now.Processors = append(now.Processors, spectator.Processor{Contact: h.Contact(), State: st.State.String(), Epoch: st.Epoch})
		if st.State == tile.Serving && h.Contact() == now.Owner && h.line.is(flowing) {
			if d, err := h.state(bounded, now.Tile); err == nil {
				now.Digest, now.DigestSeq = d.Digest, d.Seq
			}
		}
	}
	return now
}

// Status implements spectator.API.
func (t *tower) Status() spectator.Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	s.Routing = t.meters.routing()
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

// askTimeout is how long a host may take to answer; one that is paused never does.
const askTimeout = time.Second

// askToTake asks one host to take a tile over.
func (t *tower) askToTake(ctx context.Context, next string, id fence.TileID) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+next+"/takeover?tile="+url.QueryEscape(id.String()), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(io.LimitReader(response.Body, 500)) // the status alone will do
		return fmt.Errorf("%s: %s", next, strings.TrimSpace(string(why)))
	}
	return nil
}

// line is the status line.
func (t *tower) line(since time.Duration) string {
	s := t.Status()
	low, high := fence.Epoch(0), fence.Epoch(0)
	owned := 0
	for _, ts := range s.Tiles {
		if ts.Epoch == 0 {
			continue
		}
		owned++
		if low == 0 || ts.Epoch < low {
			low = ts.Epoch
		}
		high = max(high, ts.Epoch)
	}
	epochs := fmt.Sprint(low)
	if high > low {
		epochs = fmt.Sprintf("%d–%d", low, high)
	}
	latency := "–"
	if s.Latency.Samples > 0 {
		latency = fmt.Sprintf("p50 %.1f p99 %.1f ms", s.Latency.P50, s.Latency.P99)
	}
	trouble := ""
	if t.chaos != nil {
		trouble = t.chaos.line()
	}
	return fmt.Sprintf("%4.0fs  ticks %d  commits %.0f/s  watchers %d  commit→client %s  tiles %d/%d  owner epoch %s%s",
		since.Seconds(), t.meters.ticks.Load(), s.Commits, s.Watchers, latency, owned, len(t.world), epochs, trouble)
}
