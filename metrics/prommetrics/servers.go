package prommetrics

import (
	"context"
	"reflect"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/plan"
)

// Servers serves the figures and the health of servers, of their connections, and of their part in groups and gossip.
// Servers of other types that have Health are asked for it. Every process with a match server serves the depth of the
// whole queue: take the greatest of them, not the sum.
func (m *Metrics) Servers(servers ...tilefence.Server) {
	for _, s := range servers {
		switch s := s.(type) {
		case *tilefence.TileServer:
			own(m, "_tilehost", func() hostStats { return readHost(s.Host().Status()) })
			must(Collect(m, s.Host(), nil))
			m.parts(func() any { return s.Stats() }, nil)
			if desk := s.Plans(); desk != nil {
				must(Collect(m, desk, nil))
			}
		case *tilefence.GatewayServer:
			m.parts(func() any { return s.Stats() }, nil)
		case *tilefence.BridgeServer:
			m.parts(func() any { return s.Stats() }, prometheus.Labels{"group": "bridge"})
		case *tilefence.RelayServer:
			must(Collect(m, s.Relay(), nil))
		case *tilefence.CheckpointServer:
			m.parts(func() any { return s.Stats() }, prometheus.Labels{"group": "checkpoint"})
		case *tilefence.PlanServer:
			m.parts(func() any { return s.Stats() }, nil)
		case *tilefence.MatchServer:
			m.queues(s.Lobby())
		}
		if h, ok := s.(tilefence.Healthy); ok {
			own(m, "", func() healthStats { return readHealth(h.Health()) })
		}
	}
}

// must is for the Stats of this module, whose fields have the types that Collect takes.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// own serves figures of this package, whose names begin with namespace and prefix.
func own[S any](m *Metrics, prefix string, read func() S) {
	must(m.addSource(reflect.TypeFor[S](), namespace+prefix,
		func() (reflect.Value, error) { return reflect.ValueOf(read()), nil }, nil))
}

// parts serves the Stats of each part of a server, which are the fields of read's. The labels are for the one that is
// in several servers of a process, its share of the tiles. A membership without figures has none; those of one that is
// not of this module are served as far as that is possible.
func (m *Metrics) parts(read func() any, labels prometheus.Labels) {
	now := reflect.ValueOf(read())
	for i := range now.NumField() {
		field, with := now.Type().Field(i), prometheus.Labels(nil)
		value := func() reflect.Value { return reflect.ValueOf(read()).Field(i) }
		if field.Name == "Share" {
			with = labels
		}
		if field.Type.Kind() != reflect.Interface {
			must(m.addSource(field.Type, prefixOf(field.Type),
				func() (reflect.Value, error) { return value(), nil }, with))
		} else if !now.Field(i).IsNil() {
			t := now.Field(i).Elem().Type()
			_ = m.addSource(t, prefixOf(t), func() (reflect.Value, error) { return value().Elem(), nil }, with)
		}
	}
}

// Plan serves the depth of a store's queues, all shards together. Call it in one process, or the depths count more than
// once when they are added up.
func (m *Metrics) Plan(store plan.Store) {
	must(Read(m, func(ctx context.Context) (sum plan.Depth, err error) {
		for shard := range store.Shards() {
			d, err := store.Depth(ctx, shard)
			if err != nil {
				return sum, err
			}
			sum.Players, sum.Background, sum.Busy = sum.Players+d.Players, sum.Background+d.Background, sum.Busy+d.Busy
			sum.Dead, sum.Usage, sum.Oldest = sum.Dead+d.Dead, sum.Usage+d.Usage, max(sum.Oldest, d.Oldest)
		}
		return sum, nil
	}, nil))
}

// queues serves the depth of a lobby's queues.
func (m *Metrics) queues(l *match.Lobby) {
	for _, q := range l.Queues() {
		must(Read(m, func(ctx context.Context) (match.Depth, error) { return l.Depth(ctx, q) },
			prometheus.Labels{"queue": q}))
	}
}

// hostStats are the figures of a host's tiles together.
type hostStats struct {
	Tiles       states
	Frozen      int           // tiles with a batch whose fate is unknown
	FrozenFor   time.Duration // how long the longest of them has been frozen
	StreamFull  int           // tiles that stall because their stream is full
	Dilated     int           // tiles whose time is dilated, because their ticks take too long
	Quarantined int           // tiles that no process runs, because their history cannot be folded
	Queued      int           // intents that wait for a tick
	Kept        int           // batches kept until replicas confirm them
	Unjournaled int           // batches that wait for a journal
	UnderWay    int           // entities that have left tiles and are not known to have arrived
	UnderWayFor time.Duration // how long the oldest of them has been under way, in ticks' time
	Parked      int           // entities that came back, and with which the rules fail
	Closed      int           // tiles with a closed border: a neighbour does not answer, or nothing is confirmed
	StaleSights int           // rims of other tiles that the rules look at, and that are not fresh
	Silent      time.Duration // the longest that the owner of a followed tile has not been heard of
}

// states counts the tiles of a host, by state.
type states struct {
	Idle, Following, Claiming, Replaying, Installing, Serving, Healing, Draining, StoodDown, Stopped int
}

func readHost(all []tile.Status) (s hostStats) {
	n := &s.Tiles
	in := map[tile.State]*int{tile.Idle: &n.Idle, tile.Following: &n.Following, tile.Claiming: &n.Claiming,
		tile.Replaying: &n.Replaying, tile.Installing: &n.Installing, tile.Serving: &n.Serving,
		tile.Healing: &n.Healing, tile.Draining: &n.Draining, tile.StoodDown: &n.StoodDown, tile.Stopped: &n.Stopped}
	for i := range all {
		t := &all[i]
		if count := in[t.State]; count != nil {
			*count++
		}
		if t.Pending && !t.Frozen.IsZero() {
			s.Frozen, s.FrozenFor = s.Frozen+1, max(s.FrozenFor, time.Since(t.Frozen))
		}
		if t.StreamFull {
			s.StreamFull++
		}
		if t.Dilation > 1 && t.State == tile.Serving {
			s.Dilated++
		}
		s.UnderWay, s.Parked = s.UnderWay+t.Border.UnderWay, s.Parked+t.Border.Parked
		s.StaleSights += t.StaleSights
		if s.UnderWayFor = max(s.UnderWayFor, t.Border.For); !t.Border.Closed.IsZero() {
			s.Closed++
		}
		if t.Quarantine != nil {
			s.Quarantined++
		}
		if t.State == tile.Following {
			s.Silent = max(s.Silent, t.Silent)
		}
		s.Queued, s.Kept, s.Unjournaled = s.Queued+t.Queued, s.Kept+t.Kept, s.Unjournaled+t.Unjournaled
	}
	return s
}

// healthStats are a server's problems.
type healthStats struct{ Problems planes }

// planes counts what keeps servers from their work, as ReadyHandler says it, by plane.
type planes struct {
	Ticks, TakeOvers, Rules, Intents, Delivery, Views, Players, Checkpoints, Transfers, Matches, Plans, Settings int
}

func readHealth(all []tilefence.Problem) (s healthStats) {
	p := &s.Problems
	of := map[string]*int{"ticks": &p.Ticks, "take-overs": &p.TakeOvers, "rules": &p.Rules, "intents": &p.Intents,
		"delivery": &p.Delivery, "views": &p.Views, "players": &p.Players, "checkpoints": &p.Checkpoints,
		"transfers": &p.Transfers, "matches": &p.Matches, "plans": &p.Plans, "settings": &p.Settings}
	for _, problem := range all {
		if count := of[problem.Plane]; count != nil {
			*count++
		}
	}
	return s
}
