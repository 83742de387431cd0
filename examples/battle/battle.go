package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// battle runs every actor in this process: the shape of the whole deployment on one page. Intents and frames travel
// over loopback sockets all the same.
func battle(ctx context.Context, o *options, dir string, logger *slog.Logger, out, errs io.Writer) error {
	ctx, p, err := newPlan(ctx, o, dir, logger, errs)
	if err != nil {
		return err
	}
	defer p.close()
	d := &deployment{plan: p}
	stop, err := d.run()
	if err != nil {
		return err
	}
	r, err := d.play(ctx)
	if err == nil {
		err = d.fill(r) // before the hosts hand over all that they have
	}
	stop()
	if err = errors.Join(err, failed(ctx)); err != nil {
		return err
	}
	if d.chaos != nil {
		r.Chaos = d.chaos.Report()
	}
	if err := r.Write(o.report, out); err != nil {
		return err
	}
	return r.Verdict()
}

// deployment is all actors of a battle in one process.
type deployment struct {
	*plan
	hosts         *hosts
	poller        *statuspoller.Poller
	page          net.Listener
	view, intents string // URLs of relay and gateway

	bridgeLine        *faultinject.Line
	watchers, players *faultinject.Listener // the connections of relay and gateway
}

// run starts every actor but the bots. stop stops them all and waits for their end.
func (d *deployment) run() (stop func(), err error) {
	b := d.backends.Backends
	d.bridgeLine = faultinject.New()
	if d.options.chaos {
		b = d.bridgeLine.Process(b)
	}
	bridge, err := d.newBridge(b)
	if err != nil {
		return nil, err
	}
	checkpointer, err := d.newCheckpointer()
	if err != nil {
		return nil, err
	}
	if err := d.listen(); err != nil {
		return nil, err
	}
	d.hosts = &hosts{plan: d.plan}
	d.poller = d.newPoller(d.hosts)
	if d.options.lobby > 0 {
		if d.lobby, err = d.newLobby(); err != nil {
			return nil, err
		}
	}
	relay, err := d.newRelay(d.watchers, d.poller)
	if err != nil {
		return nil, err
	}
	gateway, err := d.newGateway(d.players)
	if err != nil {
		return nil, err
	}
	if err := d.startHosts(); err != nil {
		return nil, err
	}
	if d.lobby != nil {
		if err := d.lobby.open(); err != nil {
			return nil, err
		}
	}
	if d.options.chaos {
		d.chaos = d.newChaos()
	}
	fmt.Fprintf(d.errs, "%d tiles, %d bots, tile hosts at %v\n", len(d.world), d.options.clients, d.poller.Contacts)
	if !d.options.noPage {
		fmt.Fprintf(d.errs, "\n  watch the battle:  %s\n\n", d.secure.URL("http", d.page.Addr().String()+"/"))
	}
	if err := d.observe(); err != nil {
		return nil, err
	}
	d.ask(gateway, bridge, relay, checkpointer)
	servers := []tilefence.Server{d.poller, gateway, d.hosts, bridge, relay, checkpointer}
	if d.secure != nil {
		servers = append(servers, d.controlAt(d.page))
	}
	stopServers := d.start(func(ctx context.Context) error { return tilefence.Run(ctx, servers...) })
	return func() { d.stop(stopServers) }, nil
}

// listen opens the ports of the page, and of relay and gateway. The relay is at the page's unless the battle is secure.
func (d *deployment) listen() (err error) {
	if d.page, err = listen(d.options.listen, true); err != nil {
		return err
	}
	doors, err := listen("127.0.0.1:0", false)
	if err != nil {
		return err
	}
	watchers := d.page
	if d.secure != nil {
		if watchers, err = listen("127.0.0.1:0", false); err != nil {
			return err
		}
	}
	d.watchers, d.players = &faultinject.Listener{Listener: watchers}, &faultinject.Listener{Listener: doors}
	d.view = d.secure.URL("ws", watchers.Addr().String()+viewPath)
	d.intents = d.secure.URL("ws", doors.Addr().String()+intentPath)
	return nil
}

// stop stops everything, from the players' side to the servers.
func (d *deployment) stop(servers func()) {
	if d.lobby != nil {
		d.lobby.close(context.Background())
	}
	servers()
	d.pilot.Close()
}

// startHosts starts the tile hosts, each on a port of its own, and deals them the tiles. Each follows those of the
// others. Planners fly ships of theirs.
func (d *deployment) startHosts() error {
	if d.options.pilots > 0 {
		d.pilot = d.newPilots()
		d.metrics.Plan(d.backends.Plans)
		if err := d.pilot.Open(); err != nil {
			return err
		}
	}
	for range d.options.hosts {
		h, err := d.hosts.open("127.0.0.1:0")
		if err != nil {
			return err
		}
		d.hosts.places = append(d.hosts.places, h)
		d.poller.Contacts = append(d.poller.Contacts, h.Contact())
	}
	for i, id := range d.world {
		if err := d.hosts.places[i%d.options.hosts].Own(id); err != nil {
			return err
		}
	}
	for _, h := range d.hosts.places {
		if err := h.Follow(d.world...); err != nil { // its own stay its own
			return err
		}
	}
	return nil
}

// play lets the bots play until the battle is over, and then compares what they saw with what the owners decided.
func (d *deployment) play(ctx context.Context) (*measure.Report, error) {
	f, err := d.newFleet(d.view, d.intents)
	if err != nil {
		return nil, err
	}
	r := d.newReport()
	stopChaos, stopLobby := func() {}, func() {}
	if d.lobby != nil {
		stopLobby = d.start(d.lobby.queueUp)
	}
	if d.chaos != nil {
		stopChaos = d.start(d.chaos.Run)
	}
	stopStatus := d.start(d.printStatus)
	r.Ended(f.Play(ctx, func() {
		stopChaos() // it puts right what it has broken
		stopStatus()
		stopLobby()
		d.pilot.Rest()
		fmt.Fprintln(d.errs, "draining…")
	}))
	if d.lobby != nil {
		if r.Lobby, err = d.lobby.report(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	if err = d.count(ctx, f, r); err != nil {
		return nil, err
	}
	if d.chaos != nil && r.Converged {
		r.Audited, err = f.Audit(context.WithoutCancel(ctx), d.backends.Ledger, energy, welcomeGift)
	}
	return r, err
}

// count counts the ships. The bots play no more, and what they saw was right.
func (p *plan) count(ctx context.Context, f *players.Fleet, r *measure.Report) (err error) {
	if r.Converged {
		r.Census, err = f.Census(context.WithoutCancel(ctx), p.backends.Log, p.world)
	}
	return err
}
