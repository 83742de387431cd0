package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/benchmark/measure"
	"github.com/tilefence/tilefence/internal/benchmark/players"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// actor runs one actor as this process, against servers that already run.
func actor(ctx context.Context, o *options, dir string, logger *slog.Logger, out, errs io.Writer) error {
	ctx, p, err := newPlan(ctx, o, dir, logger, errs)
	if err != nil {
		return err
	}
	defer p.close()
	if o.gossip != "" {
		c := gossip.Config{Bind: o.gossip, Advertise: o.gossipAdvertise, Seeds: list(o.gossipSeeds),
			Timing: gossip.Fast(), Logger: logger, Label: o.world, SecretKeys: p.backends.Keys}
		p.backends.Members = c
	}
	if o.orders {
		ctx = p.takeOrders(ctx, os.Stdin, out)
	}
	r := p.newReport()
	if o.command == "bots" {
		var f *players.Fleet
		if f, err = p.newFleet(o.relayURL, o.gatewayURL); err == nil {
			r.Ended(f.Play(ctx, func() {}))
			if !o.orders { // else others play on
				err = p.count(ctx, f, r)
			}
		}
	} else {
		var servers []tilefence.Server
		if servers, err = p.servers(); err == nil {
			err = tilefence.Run(ctx, servers...)
		}
	}
	if err = errors.Join(err, failed(ctx)); err != nil {
		return err
	}
	if err = p.fill(r); err != nil {
		return err
	}
	if o.report == "json" || o.command == "bots" {
		err = r.Write(o.report, out)
	}
	if o.command == "bots" {
		err = errors.Join(err, r.Verdict())
	}
	return err
}

// servers makes what the actor of this process is.
func (p *plan) servers() ([]tilefence.Server, error) {
	switch p.options.command {
	case "tile":
		h, err := p.tileHost()
		return []tilefence.Server{h}, err
	case "bridge":
		return p.asked(p.newBridge(p.backends.Backends))
	case "checkpointer":
		return p.asked(p.newCheckpointer())
	}
	l, err := listen(p.options.listen, false)
	if err != nil {
		return nil, err
	}
	players.WantFiles(p.errs, p.options.clients)
	if p.options.command == "gateway" {
		p.say("gateway at %s\n", p.secure.URL("ws", l.Addr().String()+intentPath))
		return p.beside(p.asked(p.newGateway(l)))
	}
	p.say("relay at %s", p.secure.URL("ws", l.Addr().String()+viewPath))
	if p.secure == nil {
		p.say(", page at http://%s/", l.Addr())
	}
	p.say("\n")
	t := p.newPoller(nil)
	t.Contacts = list(p.options.hostList)
	all, err := p.beside(p.asked(p.newRelay(l, t)))
	return append([]tilefence.Server{t}, all...), err
}

// asked has one server asked, which was made without an error.
func (p *plan) asked(s tilefence.Server, err error) ([]tilefence.Server, error) {
	if err != nil {
		return nil, err
	}
	p.ask(s)
	return []tilefence.Server{s}, nil
}

// tileHost makes the tile host that the options describe.
func (p *plan) tileHost() (*host, error) {
	owned, err := numbered("own", p.options.only, p.world)
	if err != nil {
		return nil, err
	}
	followed, err := numbered("follow", p.options.follow, p.world)
	if err != nil {
		return nil, err
	}
	l, err := listen(p.options.listen, false)
	if err != nil {
		return nil, err
	}
	h, err := p.newHost(l)
	if err != nil {
		return nil, err
	}
	if p.options.takeOver {
		for _, id := range owned {
			if err := h.Host().TakeOver(id); err != nil {
				return nil, err
			}
		}
	}
	p.say("tile host at %s: %d tiles\n", h.Contact(), len(owned))
	return h, errors.Join(h.Own(owned...), h.Follow(followed...)) // its own stay its own
}

// newReport is the report of a battle or of an actor, with no figures yet.
func (p *plan) newReport() *measure.Report {
	return &measure.Report{Stack: cmp.Or(p.options.command, p.options.stack), Tiles: len(p.world),
		Clients: p.options.clients, TickMs: float64(p.options.tick) / float64(time.Millisecond)}
}

// fill takes the figures of this process.
func (p *plan) fill(r *measure.Report) error {
	totals, err := statuspoller.ReadTotals(p.registry)
	r.Fill(p.meters, p.fleet.Load(), totals)
	return err
}

// cut answers an order.
func (p *plan) cut() (figures.Set, error) {
	r := p.newReport()
	if err := p.fill(r); err != nil {
		return figures.Set{}, err
	}
	return r.Cut(p.meters)
}

// takeOrders obeys the orders of standard input beside what the process does; an order that it cannot obey ends it.
// The end of the orders ends the process as SIGTERM does: the process that gave them is gone.
func (p *plan) takeOrders(ctx context.Context, in io.Reader, out io.Writer) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		if err := figures.Obey(in, out, p.cut); err != nil {
			p.fail(err)
		}
		cancel()
	}()
	return ctx
}
