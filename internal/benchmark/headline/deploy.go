//go:build linux

package headline

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/internal/devstack"
)

// battle is one deployment: servers and actors, and where they run.
type battle struct {
	Config
	Size
	programs     string // the directory of the battle and the swarm
	stack        *devstack.Stack
	hosts        []*process
	others       []*process // bridge, checkpointer, relay, gateway: in the order in which they end
	players      []*process
	view, intent string // URLs
	secret       string // of the actors
}

// deploy starts servers of this battle's own, since what an earlier one left would be part of it, and every actor but
// the bots.
func deploy(ctx context.Context, cfg Config, size Size, programs string) (b *battle, err error) {
	b = &battle{Config: cfg, Size: size, programs: programs, secret: rand.Text()}
	parts := []devstack.Part{devstack.Coordination, devstack.Fanout, devstack.Postgres, devstack.DynamoDB}
	if b.stack, err = devstack.Start(ctx, devstack.Config{Parts: parts}); err != nil {
		return nil, err
	}
	if err = b.start(ctx); err != nil {
		b.kill()
		return nil, err
	}
	return b, nil
}

func (b *battle) start(ctx context.Context) error {
	seeds, err := b.startHosts(ctx)
	if err != nil {
		return err
	}
	gossip, err := freeAddress()
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"gateway", "-listen", "127.0.0.1:0", "-gossip", gossip, "-gossip-seeds", strings.Join(seeds, ",")},
		{"relay", "-listen", "127.0.0.1:0", "-no-page"}, {"bridge"}, {"checkpointer"},
	} {
		p, err := b.launch(args[0], append(args, "-clients", strconv.Itoa(b.Players))...)
		if err != nil {
			return err
		}
		b.others = append(b.others, p)
	}
	if b.intent, err = b.others[0].find(ctx, `gateway at (\S+)`); err != nil {
		return err
	}
	b.view, err = b.others[1].find(ctx, `relay at (ws://\S+),`)
	return err
}

// startHosts starts the tile hosts, deals them the tiles, and returns their gossip addresses. Each follows all tiles
// that it does not own.
func (b *battle) startHosts(ctx context.Context) (seeds []string, err error) {
	for i := range hosts {
		var own []string
		for n := i; n < tiles; n += hosts {
			own = append(own, strconv.Itoa(n))
		}
		address, err := freeAddress()
		if err != nil {
			return nil, err
		}
		args := []string{"tile", "-listen", "127.0.0.1:0", "-own", strings.Join(own, ","), "-follow", "all",
			"-gossip", address}
		if i > 0 {
			args = append(args, "-gossip-seeds", strings.Join(seeds, ","))
		}
		h, err := b.launch("tile hosts", args...)
		if err != nil {
			return nil, err
		}
		b.hosts, seeds = append(b.hosts, h), append(seeds, address)
		if _, err := h.find(ctx, `tile host at (\S+):`); err != nil {
			return nil, err
		}
	}
	return seeds, nil
}

// ordinary is how many of the players are bots that verify all that they are sent.
func (b *battle) ordinary() int { return (b.Players + verifyEvery - 1) / verifyEvery }

// startPlayers starts the ordinary bots and the swarm.
func (b *battle) startPlayers() error {
	common := []string{"-relay", b.view, "-gateway", b.intent, "-draw-every", strconv.Itoa(drawEvery),
		"-seed", strconv.FormatUint(b.Seed, 10)}
	first := b.ordinary()
	bots, err := b.launch(Swarm, append([]string{"bots", "-clients", strconv.Itoa(first), "-deal-later"},
		common...)...)
	if err != nil {
		return err
	}
	b.players = append(b.players, bots)
	for first < b.Players {
		n := min(b.Players-first, swarmSize)
		swarm, err := launch(Swarm, filepath.Join(b.programs, "swarm"), b.secret, append(slices.Clone(common),
			"-clients", strconv.Itoa(n), "-first", strconv.Itoa(first), "-tiles", strconv.Itoa(tiles), "-tick",
			tick.String(), "-redis", strings.Join(b.stack.CoordAddrs, ","))...)
		if err != nil {
			return err
		}
		b.players = append(b.players, swarm)
		first += n
	}
	return nil
}

// swarmSize is the most players of one process: each has two sockets, and a process may often have 20,000 files.
const swarmSize = 5000

// launch starts an actor with what all have in common.
func (b *battle) launch(kind string, args ...string) (*process, error) {
	common := []string{"-orders", "-report", "json", "-tiles", strconv.Itoa(tiles), "-tick", tick.String(),
		"-redis", strings.Join(b.stack.CoordAddrs, ","), "-fanout", strings.Join(b.stack.FanoutAddrs, ","),
		"-postgres", b.stack.PostgresURL, "-dynamodb", b.stack.DynamoURL}
	return launch(kind, filepath.Join(b.programs, "battle"), b.secret, append(args, common...)...)
}

// actors are all processes of the battle but the servers.
func (b *battle) actors() []*process { return slices.Concat(b.players, b.others, b.hosts) }

// alive is an error if an actor has ended by itself.
func (b *battle) alive() error {
	for _, p := range b.actors() {
		select {
		case <-p.ended:
			return fmt.Errorf("%s ended: %w\n%s", p.kind, p.err, p.errs.String())
		default:
		}
	}
	return nil
}

// kill ends a battle that was not played to its end.
func (b *battle) kill() {
	for _, p := range b.actors() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	}
	b.stack.Stop()
}

// drain ends the actors in the order in which an operator would, and the servers. It names those that did not end
// cleanly.
func (b *battle) drain() (unclean []string) {
	for _, p := range append(slices.Clone(b.others), b.hosts...) {
		p.leave()
		if err := p.await(); err != nil {
			unclean = append(unclean, fmt.Sprintf("%s: %v: %s", p.kind, err, lastLine(p.errs.String())))
		}
	}
	b.stack.Stop()
	return unclean
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndexByte(text, '\n')+1:]
}

// freeAddress is a loopback address that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
