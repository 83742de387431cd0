package main

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/faultinject/chaos"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/tile"
)

// newChaos makes what breaks this deployment on purpose, and shows it on the page.
func (d *deployment) newChaos() *chaos.Runner {
	players.WantFiles(d.errs, 2*(d.options.clients+chaos.Viewers))
	b := d.backends
	t := chaos.Target{Tiles: d.world, Watched: d.options.clients, Tick: d.options.tick,
		SuspectAfter: d.options.silence(), Tracker: d.meters.Tracker,
		Owner:    d.hosts.serving,
		Kill:     func(h chaos.Host) { d.hosts.kill(h.(*host)) },
		Restart:  func(h chaos.Host) error { return d.hosts.restart(h.(*host)) },
		TakeOver: d.poller.TakeOver, Backends: b.Backends, Store: b.line, Bridge: d.bridgeLine,
		Watchers: d.watchers, Players: d.players, DeleteOwner: b.deleteOwner, LoseTile: b.loseTile,
		Throttle: b.throttle, View: d.watchTile}
	if b.stack != nil {
		t.Servers = &chaos.Servers{Stack: b.stack, Coordination: b.coordination, Fanout: b.delivery, World: b.world}
	}
	cfg := chaos.Config{Seed: d.options.seed, Every: d.options.chaosEvery, Logger: d.logger,
		Began: func(i chaos.Injected) {
			e := statuspoller.Event{Kind: statuspoller.KindFault, Owner: i.Host, Fault: i.ID,
				Text: i.Title + i.Where() + ": " + i.Means}
			if len(i.Tiles) == 1 {
				e.Tile = i.Tiles[0]
			}
			d.meters.Log.Put(e)
		},
		Ended: func(i chaos.Injected) {
			d.meters.Log.Put(statuspoller.Event{Kind: statuspoller.KindRecovered, Owner: i.Host, Fault: i.ID,
				Text: i.Summary})
		}}
	if d.lobby != nil {
		cfg.Faults = append(cfg.Faults, d.lobby.workers.Killed())
	}
	if d.pilot != nil {
		cfg.Faults = append(cfg.Faults, d.pilot.WorkerKilled())
	}
	return chaos.New(t, &cfg)
}

// serving is owner for those who break hosts.
func (hs *hosts) serving(id fence.TileID) chaos.Host {
	if h := hs.owner(id); h != nil {
		return h
	}
	return nil
}

// watchTile connects a client of the relay that watches the whole of a tile.
func (d *deployment) watchTile(ctx context.Context, id fence.TileID, seen func()) (leave func(), err error) {
	client, err := players.Dial(ctx, func(ctx context.Context) (*relayclient.Client, error) {
		return relayclient.Dial(ctx, d.view, &relayclient.Config{HTTPClient: d.secure.Player(),
			Sync: func(relayclient.Sync) { seen() }, Reconnect: true, Logger: d.logger})
	})
	if err != nil {
		return nil, err
	}
	return func() { _ = client.Close() }, client.Subscribe(ctx, id) // it leaves
}

// Line implements chaos.Host.
func (h *host) Line() *faultinject.Line { return h.line }

// Serves implements chaos.Host.
func (h *host) Serves(id fence.TileID) (fence.Epoch, bool) {
	s := h.status(id)
	return s.Epoch, s.State == tile.Serving
}

// Part implements chaos.Host.
func (h *host) Part() { h.member.Part() }

// Rejoin implements chaos.Host.
func (h *host) Rejoin() error { return h.member.Rejoin() }
