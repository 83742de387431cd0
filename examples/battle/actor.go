package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream/share"
)

// actor runs one actor as this process, against servers that already run.
func actor(ctx context.Context, o *options, dir string, logger *slog.Logger, out, errs io.Writer) error {
	world, err := o.world()
	if err != nil {
		return err
	}
	b, err := openBackends(ctx, o, dir, errs)
	if err != nil {
		return err
	}
	defer b.close()
	a := &actorProcess{options: o, backends: b, world: world, meters: newMeters(), crew: newCrew(ctx), logger: logger, errs: errs,
		report: &report{Stack: o.command, Tiles: len(world), TickMs: float64(o.tick) / float64(time.Millisecond)}}
	run := map[string]func(context.Context) error{"tile": a.tiles, "bridge": a.bridge, "checkpointer": a.checkpointer,
		"relay": a.relay, "gateway": a.gateway, "bots": a.bots}[o.command]
	started := time.Now()
	if err := run(ctx); err != nil {
		return err
	}
	a.report.Seconds = time.Since(started).Seconds()
	a.report.fill(a.meters, a.br, a.re)
	if o.report == "json" || o.command == "bots" {
		if err := a.report.write(o.report, out); err != nil {
			return err
		}
	}
	if err := a.crew.err(); err != nil {
		return err
	}
	if o.command == "bots" && !a.report.Converged {
		return errNotConverged
	}
	return nil
}

// actorProcess is the one actor of a process.
type actorProcess struct {
	options  *options
	backends *backends
	world    []fence.TileID
	meters   *meters
	crew     *crew
	logger   *slog.Logger
	errs     io.Writer
	report   *report
	br       *bridge.Bridge
	re       *relay.Relay
}

// say tells whoever started the process something.
func (a *actorProcess) say(format string, args ...any) { fmt.Fprintf(a.errs, format, args...) }

func (a *actorProcess) tiles(ctx context.Context) error {
	owned, err := numbered("own", a.options.only, a.world)
	if err != nil {
		return err
	}
	followed, err := numbered("follow", a.options.follow, a.world)
	if err != nil {
		return err
	}
	l, err := listen(a.options.listen, false)
	if err != nil {
		return err
	}
	contact := a.options.contact
	if strings.HasSuffix(contact, ":0") {
		contact = l.Addr().String()
	}
	h, err := newHost(ctx, contact, a.joins(), a.backends, a.options, a.meters, a.logger, a.crew.fail)
	if err != nil {
		return err
	}
	stop := a.crew.serveHTTP("tile host", l, h.handler())
	defer stop()
	for _, id := range owned {
		begin := func() error { return h.Own(id) }
		if a.options.takeOver {
			begin = func() error { return h.TakeOver(id) }
		}
		if err := begin(); err != nil {
			return err
		}
	}
	if err := h.Follow(followed...); err != nil { // its own stay its own
		return err
	}
	a.say("tile host at %s: %d tiles\n", contact, len(owned))
	waitForEnd(ctx, a.options, a.crew)
	h.drain()
	return nil
}

func (a *actorProcess) bridge(ctx context.Context) (err error) {
	if a.br, err = newBridge(a.backends, nil, a.logger); err != nil {
		return err
	}
	return a.share(ctx, "bridge", a.br, a.br.Run)
}

func (a *actorProcess) checkpointer(ctx context.Context) error {
	cp, err := newCheckpointer(a.backends, nil, a.meters, a.logger)
	if err != nil {
		return err
	}
	return a.share(ctx, "checkpointer", cp, cp.Run)
}

// share runs an actor for its part of the tiles: all of them, or less while other processes run the same actor.
func (a *actorProcess) share(ctx context.Context, name string, target share.Target, run func(context.Context) error) error {
	group := fmt.Sprintf("%s-%d", name, len(a.world)) // a world of another size is another battle
	s, err := share.New(a.backends.members, group, share.Fixed(a.world), target, &share.Config{Name: name, Logger: a.logger})
	if err != nil {
		return err
	}
	stop := a.crew.start(name, run) // stopped last: it finishes what it is at
	defer stop()
	return a.until(ctx, name+"'s share", s.Run)
}

func (a *actorProcess) relay(ctx context.Context) (err error) {
	if a.re, err = newRelay(a.backends, a.world, a.meters, a.logger); err != nil {
		return err
	}
	t := &tower{store: a.backends.store, authority: a.backends.authority, world: a.world, meters: a.meters, relay: a.re}
	if a.options.hostList != "" {
		t.contacts = strings.Split(a.options.hostList, ",")
	}
	l, err := listen(a.options.listen, false)
	if err != nil {
		return err
	}
	page, err := pageHandler(a.options, a.world, t, a.re.Handler(), nil)
	if err != nil {
		return err
	}
	defer a.crew.start("tower", t.run)()
	defer a.crew.serveHTTP("web", l, page)()
	a.say("relay at ws://%s%s, page at http://%s/\n", l.Addr(), viewPath, l.Addr())
	return a.until(ctx, "relay", a.re.Run)
}

func (a *actorProcess) gateway(ctx context.Context) error {
	l, err := listen(a.options.listen, false)
	if err != nil {
		return err
	}
	handler, stop, err := startGateway(a.crew, l.Addr().String(), a.joins(), a.backends, a.meters, a.logger)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer stop()
	mux := http.NewServeMux()
	mux.Handle(intentPath, handler)
	mux.HandleFunc("GET /metrics", a.meters.serve)
	defer a.crew.serveHTTP("web", l, mux)()
	a.say("gateway at ws://%s%s\n", l.Addr(), intentPath)
	waitForEnd(ctx, a.options, a.crew)
	return nil
}

func (a *actorProcess) bots(ctx context.Context) error {
	f, err := newFleet(a.options, a.world, a.options.relayURL, a.options.gatewayURL, a.backends.store, a.meters, a.logger)
	if err != nil {
		return err
	}
	a.report.Clients = a.options.clients
	playing, stopPlaying := context.WithCancel(context.WithoutCancel(ctx))
	defer stopPlaying()
	stopBots := a.crew.start("bots", func(ctx context.Context) error { return f.run(ctx, playing) })
	waitForEnd(ctx, a.options, a.crew)
	stopPlaying()
	a.report.Converged, a.report.Why = f.converged(context.WithoutCancel(ctx))
	stopBots()
	return nil
}

// until runs an actor until the battle is over, and waits for it to drain.
func (a *actorProcess) until(ctx context.Context, name string, run func(context.Context) error) error {
	stop := a.crew.start(name, run)
	waitForEnd(ctx, a.options, a.crew)
	stop()
	return nil
}
