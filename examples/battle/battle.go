package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/relay"
)

// battle runs every actor in this process: the shape of the whole deployment on one page. Intents and
// frames travel over loopback sockets all the same.
func battle(ctx context.Context, o *options, dir string, logger *slog.Logger, out, errs io.Writer) error {
	world, err := o.world()
	if err != nil {
		return err
	}
	b, err := openBackends(ctx, o, dir, errs)
	if err != nil {
		return err
	}
	defer b.close()
	d := &deployment{options: o, backends: b, world: world, crew: newCrew(ctx), joins: inGroup(new(route.Group)), meters: newMeters(), logger: logger, errs: errs}
	defer d.stopAll()
	if err := d.start(); err != nil {
		return err
	}
	r, err := d.play(ctx)
	if err != nil {
		return err
	}
	d.stopAll()
	r.fill(d.meters, d.bridge, d.relay)
	if d.chaos != nil {
		r.Chaos = d.chaos.report()
	}
	if err := r.write(o.report, out); err != nil {
		return err
	}
	if err := d.crew.err(); err != nil {
		return err
	}
	if !r.Converged {
		return errNotConverged
	}
	return nil
}

// deployment is all actors of a battle in one process.
type deployment struct {
	options  *options
	backends *backends
	world    []fence.TileID
	crew     *crew
	joins    join // makes the hosts and the gateway members of one group
	meters   *meters
	logger   *slog.Logger
	errs     io.Writer

	bridge     *bridge.Bridge
	relay      *relay.Relay
	hosts      *hosts
	tower      *tower
	url        string // of relay and gateway, ws://host:port
	stops      []func()
	stopBridge func()

	calm              sync.Mutex // held while something is broken, or a tile handed over: never both at once
	chaos             *chaos     // nil: nothing is broken on purpose
	watchers, players *cutter    // the connections of relay and gateway
}

// startBridge starts the bridge, also again.
func (d *deployment) startBridge() { d.stopBridge = d.crew.start("bridge", d.bridge.Run) }

// onStop remembers how to stop what has been started.
func (d *deployment) onStop(f func()) { d.stops = append(d.stops, f) }

// stopAll stops the actors in the reverse order of their start: nobody loses what another still sends.
func (d *deployment) stopAll() {
	for i := len(d.stops) - 1; i >= 0; i-- {
		d.stops[i]()
	}
	d.stops = nil
}

// start starts every actor but the bots.
func (d *deployment) start() (err error) {
	b := d.backends
	if d.bridge, err = newBridge(b, d.world, d.logger); err != nil {
		return err
	}
	d.startBridge()
	d.onStop(func() { d.stopBridge() })
	checkpointer, err := newCheckpointer(b, d.world, d.meters, d.logger)
	if err != nil {
		return err
	}
	d.onStop(d.crew.start("checkpointer", checkpointer.Run)) // it outlives the hosts: their last snapshots become durable
	if err := d.startHosts(); err != nil {
		return err
	}
	if d.relay, err = newRelay(b, d.world, d.meters, d.logger); err != nil {
		return err
	}
	d.onStop(d.crew.start("relay", d.relay.Run))
	d.tower = &tower{store: b.store, authority: b.authority, world: d.world, hosts: d.hosts, meters: d.meters, relay: d.relay, bots: d.options.clients}
	for _, h := range d.hosts.all() {
		d.tower.contacts = append(d.tower.contacts, h.contact)
	}
	d.watchers, d.players = newCutter(), newCutter()
	if d.options.chaos {
		d.chaos = newChaos(d)
		d.tower.chaos = d.chaos
	}
	d.onStop(d.crew.start("tower", d.tower.run))
	gateway, stopGateway, err := startGateway(d.crew, "gateway", d.joins, b, d.meters, d.logger)
	if err != nil {
		return err
	}
	d.onStop(stopGateway)
	return d.startWeb(gateway)
}

// startWeb serves the page, the relay and the gateway at one address.
func (d *deployment) startWeb(gateway http.Handler) error {
	page, err := pageHandler(d.options, d.world, d.tower, d.watchers.wrap(d.relay.Handler()), d.players.wrap(gateway))
	if err != nil {
		return err
	}
	l, err := listen(d.options.listen, true)
	if err != nil {
		return err
	}
	d.onStop(d.crew.serveHTTP("web", l, page))
	d.url = "ws://" + l.Addr().String()
	fmt.Fprintf(d.errs, "%d tiles, %d bots, tile hosts at %v\n", len(d.world), d.options.clients, d.tower.contacts)
	if !d.options.noPage {
		fmt.Fprintf(d.errs, "\n  watch the battle:  http://%s/\n\n", l.Addr())
	}
	return nil
}

// startHosts starts the tile hosts, each on a port of its own, and deals them the tiles. Each follows those of
// the others.
func (d *deployment) startHosts() error {
	failed := func(err error) {
		if errors.Is(err, fence.ErrLost) {
			d.logger.Info("another host was first", "err", err) // two wanted the tile of a third
			return
		}
		d.crew.fail(err)
	}
	d.hosts = &hosts{make: func(contact string) (*host, error) {
		return newHost(d.crew.ctx, contact, d.joins, d.backends, d.options, d.meters, d.logger, failed)
	}}
	d.onStop(d.hosts.drain)
	for range d.options.hosts {
		if _, err := d.hosts.open(); err != nil {
			return err
		}
	}
	all := d.hosts.all()
	for i, id := range d.world {
		if err := all[i%len(all)].Own(id); err != nil {
			return err
		}
	}
	for _, h := range all {
		if err := h.Follow(d.world...); err != nil { // its own stay its own
			return err
		}
	}
	return nil
}

// play lets the bots play until the battle is over, and then compares what they saw with what the owners
// decided.
func (d *deployment) play(ctx context.Context) (*report, error) {
	o := d.options
	f, err := newFleet(o, d.world, d.url+viewPath, d.url+intentPath, d.backends.store, d.meters, d.logger)
	if err != nil {
		return nil, err
	}
	r := &report{Stack: stackName(o), Tiles: len(d.world), Clients: o.clients, TickMs: float64(o.tick) / float64(time.Millisecond)}
	started := time.Now()
	playing, stopPlaying := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPlaying()
	stopBots := d.crew.start("bots", func(ctx context.Context) error { return f.run(ctx, playing) })
	stopChaos, stopBalance := func() {}, func() {}
	if o.balanceEvery > 0 {
		stopBalance = d.crew.start("balance", d.balance)
	}
	if d.chaos != nil {
		stopChaos = d.crew.start("chaos", d.chaos.run)
	}
	stopStatus := d.crew.start("status", func(ctx context.Context) error { return showStatus(ctx, d.errs, d.tower.line) })
	waitForEnd(ctx, o, d.crew)
	stopChaos() // it puts right what it has broken
	stopBalance()
	stopStatus()
	fmt.Fprintln(d.errs, "draining…")
	stopPlaying()
	r.Seconds = time.Since(started).Seconds()
	r.Converged, r.Why = f.converged(context.WithoutCancel(ctx))
	stopBots()
	if d.chaos != nil && r.Converged {
		r.Audited, err = f.audit(context.WithoutCancel(ctx), d.backends.ledger)
	}
	return r, err
}

// waitForEnd returns when the battle is over: told to stop, out of time, or something failed.
func waitForEnd(ctx context.Context, o *options, c *crew) {
	var end <-chan time.Time
	if o.duration > 0 {
		t := time.NewTimer(o.duration)
		defer t.Stop()
		end = t.C
	}
	select {
	case <-ctx.Done():
	case <-end:
	case <-c.failed:
	}
}

func stackName(o *options) string {
	if o.redis != "" {
		return "servers"
	}
	return o.stack
}

func newBridge(b *backends, world []fence.TileID, logger *slog.Logger) (*bridge.Bridge, error) {
	return bridge.New(b.log, b.broker, world, &bridge.Config{Logger: logger, Hints: b.broker})
}

func newCheckpointer(b *backends, world []fence.TileID, m *meters, logger *slog.Logger) (*checkpoint.Checkpointer, error) {
	return checkpoint.New(b.log, b.checkpoints, world, &checkpoint.Config{Logger: logger, Journal: b.checkpoints,
		Hooks: checkpoint.Hooks{Durable: func(checkpoint.DurableInfo) { m.checkpoints.Add(1) }}})
}

func newRelay(b *backends, world []fence.TileID, m *meters, logger *slog.Logger) (*relay.Relay, error) {
	known := map[fence.TileID]bool{}
	for _, id := range world {
		known[id] = true
	}
	return relay.New(b.broker, b.log, &relay.Config{Logger: logger, MaxClients: 25000,
		Hooks: relay.Hooks{Repaired: func(i relay.RepairInfo) {
			if i.Err == nil && (i.Kind == "tail" || i.Kind == "full") { // the others are first loads and refreshes
				m.relayRepairs.Add(1)
			}
		}},
		AuthorizeTile: func(_ *http.Request, id fence.TileID) error {
			if !known[id] {
				return fmt.Errorf("tile %s is not part of this battle", id)
			}
			return nil
		}})
}
