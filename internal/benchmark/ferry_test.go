//go:build linux

package benchmark

import (
	"context"
	"encoding/json"
	"fmt"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/tile"
)

// envFerries makes this test binary a tile server whose tiles ferries cross: it holds a ferryConfig as JSON.
const envFerries = "TILEFENCE_BENCH_FERRIES"

// ferryConfig says what such a server does.
type ferryConfig struct {
	Redis    []string
	Postgres string
	Contact  string
	Gossip   string
	Seeds    []string       // where others gossip
	Tiles    []fence.TileID // that it owns, or follows if another does
	Others   []fence.TileID // to which their ships go, each to that in its place
	Full     bool           // the tiles have the ships at the beginning
}

// serveFerries is the child process, until SIGTERM.
func serveFerries(text string) error {
	var cfg ferryConfig
	if err := json.Unmarshal([]byte(text), &cfg); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	seams, done, err := openSeams(ctx, cfg.Redis, cfg.Postgres)
	if err != nil {
		return err
	}
	defer done()
	server, err := tilefence.NewTileServer(cfg.Contact, tilefence.Backends{Authority: seams.Authority,
		Store: seams.Store, Log: seams.Log, Fanout: memfanout.New(), Durable: memcheckpoint.New(),
		Members: gossip.Config{Bind: cfg.Gossip, Seeds: cfg.Seeds, Timing: gossip.Fast()},
		Tiles:   func(fence.TileID) error { return nil }},
		func(id fence.TileID) (tile.Rules, error) {
			return &ferry{other: cfg.Others[slices.Index(cfg.Tiles, id)], full: cfg.Full}, nil
		}, nil)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	if err := server.Own(cfg.Tiles...); err != nil {
		return err
	}
	for ctx.Err() == nil && slices.ContainsFunc(cfg.Tiles, func(id fence.TileID) bool {
		s, _ := server.Host().TileStatus(id)
		return s.State != tile.Serving && (s.State != tile.Following || !s.Owner.Present())
	}) {
		time.Sleep(10 * time.Millisecond)
	}
	speaker()(nodeEvent{What: "ready"})
	return <-ended
}

// ferry is the rules of a tile whose ships leave for one other.
type ferry struct {
	other fence.TileID
	full  bool
	begun bool
	ships []string
}

const (
	ferryShips = 60
	ferryRate  = 4 // that leave at a tick
)

// Restore implements tile.Rules.
func (f *ferry) Restore(b []byte) error {
	f.ships, f.begun = strings.Fields(string(b)), len(b) > 0
	return nil
}

// Snapshot implements tile.Rules.
func (f *ferry) Snapshot() ([]byte, error) {
	if !f.begun {
		return nil, nil
	}
	return []byte(" " + strings.Join(f.ships, " ")), nil
}

// Resolve implements tile.Rules; Play is called.
func (f *ferry) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) { return nil, nil }

// Play implements tile.TransferRules.
func (f *ferry) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	say := func(what, ship string) { out.Events = append(out.Events, []byte(what+ship)) }
	if !f.begun {
		for i := 0; f.full && i < ferryShips; i++ {
			say("+", fmt.Sprint(f.other, ".", i))
		}
		say("*", "")
		return out
	}
	for _, ship := range f.ships[:min(ferryRate, len(f.ships), in.Room(f.other, 0))] {
		out.Departures = append(out.Departures, stream.Departure{To: f.other, Entity: ship})
		say("-", ship)
	}
	for _, a := range in.Arrivals {
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
		say("+", a.Entity)
	}
	return out
}

// Apply implements tile.Rules.
func (f *ferry) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		ship := string(e[1:])
		at := slices.Index(f.ships, ship)
		switch {
		case e[0] == '*':
			f.begun = true
		case e[0] == '+' && at < 0:
			f.ships = append(f.ships, ship)
		case e[0] == '-' && at >= 0:
			f.ships = slices.Delete(f.ships, at, at+1)
		default:
			return fmt.Errorf("%s: the tile has %v", e, f.ships)
		}
	}
	return nil
}
