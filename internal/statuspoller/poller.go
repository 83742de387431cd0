// Package statuspoller polls the hosts and metrics of a battle, for its spectator page and its status line: which host
// owns a tile, since when and under which epoch, how far the consumers are, and what would be lost.
package statuspoller

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/inspect"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Poller watches a battle for the page and the status line. Which host owns a tile comes from the inspectors of the
// hosts, the rest from the process that it runs in. It is a tilefence.Server and a spectator.API. Set the fields
// before Run.
type Poller struct {
	Tiles    []fence.TileID
	Contacts []string // of the tile hosts
	Bots     int
	Relay    *relay.Relay
	Log      *Log
	Store    fence.Store
	// Authority says since when an epoch is valid.
	Authority fence.Authority
	Inspector func(contact string) *inspect.Client

	Totals  func() (Totals, error)   // of the metrics of this process
	Clients func() relayclient.Stats // of the bots of this process
	Latency *figures.Histogram       // from a commit to a bot
	Frames  *atomic.Int64            // that bots have received
	Add     func(s *Status)          // what the process knows beside that; called for each Status

	// Digest is that of the owner's state, if the owner is a host of this process that runs. Nil: none is.
	Digest func(ctx context.Context, owner string, id fence.TileID) (digest string, seq fence.Seq, ok bool)

	inspectors inspectors
	times      map[fence.TileID]*sequenceTimes // of Run

	mu     sync.Mutex
	status Status
}

// Every is how often the poller looks.
const Every = 250 * time.Millisecond

// Run implements tilefence.Server: it looks around until ctx ends.
func (t *Poller) Run(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	var asking sync.WaitGroup
	asking.Go(func() { t.inspectors.run(ctx, t.Contacts, t.Inspector) })
	defer asking.Wait()
	defer stop()
	t.times = map[fence.TileID]*sequenceTimes{}
	var r rates
	for {
		n, err := t.Totals()
		if err != nil {
			return err
		}
		t.look(ctx, n, &r)
		if !wait.For(ctx, Every) {
			return nil
		}
	}
}

// rates are those of what the page shows.
type rates struct{ commits, events, bytes, frames rate }

// rate turns a counter that is read at every look into a rate a second, averaged over about two seconds.
type rate struct{ last, average float64 }

func (r *rate) of(v float64) float64 {
	r.average += ((v-r.last)/Every.Seconds() - r.average) / 8
	r.last = v
	return r.average
}

func (t *Poller) look(ctx context.Context, n Totals, per *rates) {
	old := t.Status()
	l, r := t.Latency.Recent(), t.Relay.Stats()
	clients := t.Clients()
	s := Status{At: time.Now().UnixMilli(), Watchers: r.Clients, Bots: t.Bots,
		Commits: per.commits.of(n["tile_commit_seconds"]), Events: per.events.of(n["tile_events_total"]),
		ColdReads: n.Count("relay_repairs_total"), StaleDrops: n.Count("relay_stale_drops_total"),
		SupersededTails: n.Count("bridge_dropped_total/superseded", "relay_lower_epoch_total"),
		DeadLetters:     n.Count("bridge_dead_letters_total"), Ledger: n.Settled(),
		Gaps:    clients.Gaps + r.Gaps,
		Repairs: clients.Repaired + uint64(n["relay_repair_seconds/tail"]+n["relay_repair_seconds/full"]),
		Latency: Latency{P50: l.P50, P99: l.P99, Samples: int(l.Count)}}
	bytes, frames := per.bytes.of(float64(clients.Bytes)), per.frames.of(float64(t.Frames.Load()))
	if frames > 1 {
		s.BytesPerTick = bytes / frames
	}
	for i, id := range t.Tiles {
		before := TileStatus{Tile: id}
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
// page that knows no hosts, its owner hash says who owns it.
func (t *Poller) lookAt(ctx context.Context, now TileStatus) TileStatus {
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	o := t.inspectors.shows(&now, t.Contacts)
	if o.Epoch == 0 {
		var err error
		if o, err = t.Store.Owner(bounded, now.Tile); err == nil && o.Present() {
			now.Position, now.Seq = o.Position.String(), o.Position.Seq
		}
	}
	if o.Contact != "" && o.Epoch >= now.Epoch { // a follower may be behind
		t.owned(ctx, &now, &o)
	}
	if now.State == tile.Serving.String() {
		if t.times[now.Tile] == nil {
			t.times[now.Tile] = new(sequenceTimes)
		}
		t.times[now.Tile].note(now.Seq, now.Tick)
		now.Lost = t.times[now.Tile].after(now.Seq-now.AtRisk, now.Tick)
	}
	if t.Digest != nil && now.State == tile.Serving.String() {
		if digest, seq, ok := t.Digest(bounded, now.Owner, now.Tile); ok {
			now.Digest, now.DigestSeq = digest, seq
		}
	}
	return now
}

// mintsWithin is how long the authority may take: it may be paused, and the page goes on without it.
const mintsWithin = 100 * time.Millisecond

// owned notes who owns a tile, and, once for each epoch, what the authority does. The authority may be ahead:
// the tile is then changing hands.
func (t *Poller) owned(ctx context.Context, now *TileStatus, o *fence.Owner) {
	switch before := now.Epoch; {
	case before == 0:
		t.Log.Add(KindInstalled, o.Tile, o.Contact, o.Epoch,
			"%s owns the tile under epoch %d", o.Contact, o.Epoch)
	case o.Epoch != before:
		now.Since, now.Mints = 0, 0
		t.Log.Add(KindInstalled, o.Tile, o.Contact, o.Epoch,
			"epoch %d → %d: %s took over from %s", before, o.Epoch, o.Contact, now.Owner)
	}
	now.Owner, now.Epoch, now.Tick = o.Contact, o.Epoch, o.Tick
	if now.Mints > 0 {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, mintsWithin)
	defer cancel()
	if g, err := t.Authority.Lookup(bounded, now.Tile); err == nil && g.Epoch == now.Epoch {
		now.Since, now.Mints = g.Minted.UnixMilli(), g.Mints
	}
}

// Status implements spectator.API.
func (t *Poller) Status() Status {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.status
	t.Add(&s)
	return s
}

// Events implements spectator.API.
func (t *Poller) Events(after uint64) []Event { return t.Log.After(after) }

// TakeOver implements spectator.API: it asks the host after the owner to take the tile, or the first after
// that which answers.
func (t *Poller) TakeOver(ctx context.Context, id fence.TileID) error {
	if len(t.Contacts) < 2 {
		return errors.New("there is no other tile host: start a second one")
	}
	o, err := t.Store.Owner(ctx, id)
	if err != nil {
		return err
	}
	at := slices.Index(t.Contacts, o.Contact)
	for i := range len(t.Contacts) - 1 {
		if err = t.askToTake(ctx, t.Contacts[(at+1+i)%len(t.Contacts)], id); err == nil {
			return nil
		}
	}
	return err
}

// moveWithin bounds a request to move a tile. Nothing else waits for it, and a host that has no processor answers late.
const moveWithin = 10 * time.Second

// askToTake asks the inspector of one host to take a tile over.
func (t *Poller) askToTake(ctx context.Context, next string, id fence.TileID) error {
	ctx, cancel := context.WithTimeout(ctx, moveWithin)
	defer cancel()
	return t.Inspector(next).TakeOver(ctx, id)
}

// line is the status line.
func (t *Poller) line(since time.Duration, trouble string) string {
	s := t.Status()
	owned, epochs := 0, []fence.Epoch{}
	for _, ts := range s.Tiles {
		if ts.Epoch > 0 {
			owned, epochs = owned+1, append(epochs, ts.Epoch)
		}
	}
	slices.Sort(epochs)
	return fmt.Sprintf("%4.0fs  commits %.0f/s  watchers %d  commit→client p50 %.1f p99 %.1f ms  "+
		"tiles %d/%d  owner epochs %v%s", since.Seconds(), s.Commits, s.Watchers,
		s.Latency.P50, s.Latency.P99, owned, len(t.Tiles), slices.Compact(epochs), trouble)
}

// Print writes a line about the battle, ended by what trouble returns: rewritten in place on a terminal, now and then
// elsewhere.
func (t *Poller) Print(ctx context.Context, out io.Writer, trouble func() string) error {
	every, before, after := 5*time.Second, "", "\n"
	if f, ok := out.(*os.File); ok {
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeCharDevice != 0 {
			every, before, after = 500*time.Millisecond, "\r\x1b[K", ""
		}
	}
	for began := time.Now(); wait.For(ctx, every); {
		fmt.Fprintf(out, "%s%s%s", before, t.line(time.Since(began), trouble()), after)
	}
	_, err := fmt.Fprint(out, strings.TrimSuffix("\n", after))
	return err
}

// Totals are metrics as they are now, by their names without tilefence_: each over all values of its labels, and, with
// a slash and the value, for one value of a label. Of a histogram it is how many observations there were.
type Totals map[string]float64

// ReadTotals reads the library's metrics from a registry.
func ReadTotals(g prometheus.Gatherer) (Totals, error) {
	families, err := g.Gather()
	all := Totals{}
	for _, f := range families {
		name := strings.TrimPrefix(f.GetName(), "tilefence_")
		for _, m := range f.GetMetric() {
			v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			all[name] += v
			for _, label := range m.GetLabel() {
				all[name+"/"+label.GetValue()] += v
			}
		}
	}
	return all, err
}

// Count adds metrics up; nil if this process has none of them.
func (t Totals) Count(names ...string) *uint64 {
	var sum uint64
	found := false
	for _, name := range names {
		v, ok := t[name]
		sum, found = sum+uint64(v), found || ok
	}
	if !found {
		return nil
	}
	return &sum
}

// Settled is how many actions the ledger has settled, by outcome; empty where no gateway is.
func (t Totals) Settled() map[string]uint64 {
	all := map[string]uint64{}
	for o := stream.Applied; o.Valid(); o++ {
		if n := t.Count("admission_settles_total/" + o.String()); n != nil {
			all[o.String()] = *n
		}
	}
	return all
}
