//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/figures"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// swarm is all players of a process, and what they have counted. All but the calls of do belongs to the loop.
type swarm struct {
	every     time.Duration // between two acts of a player
	players   []*player
	poll      int // the epoll
	calls     chan func()
	ended     chan struct{} // closed when the loop has ended
	arrived   int
	next      int // in the order of phases, the player who acts next
	over      bool
	joined    atomic.Int64 // who have had their first Sync
	buffer    [256 << 10]byte
	text      []byte // of an order
	toClient  *figures.Histogram
	toOutcome *figures.Histogram
	toRefusal *figures.Histogram
	counts
}

// counts are since the beginning.
type counts struct {
	bytes, frames, syncs, gaps, resyncs uint64
	moves, movesFailed, movesRefused    uint64
	cards                               uint64
	outcomes                            map[string]uint64
}

// picture is what all players of a tile look at: an ordinary client's.
type picture struct {
	id     fence.TileID
	ground game.Ground
	view   *game.View
	client *relayclient.Client
	broken atomic.Pointer[error]
}

// paint begins to watch a tile.
func paint(ctx context.Context, relay string, id fence.TileID) (*picture, error) {
	ground, err := game.GroundOf(id, nil)
	if err != nil {
		return nil, err
	}
	p := &picture{id: id, ground: ground}
	if p.view, err = game.NewView(ground); err != nil {
		return nil, err
	}
	note := func(err error) {
		if err != nil {
			p.broken.Store(&err)
		}
	}
	p.client, err = relayclient.Dial(ctx, relay+"?actor=swarm", &relayclient.Config{Reconnect: true,
		Sync:  func(s relayclient.Sync) { note(p.view.Restore(s.Snapshot.Blob, s.Areas)) },
		Frame: func(e fence.Entry) { note(p.view.Apply(&e)) }})
	if err != nil {
		return nil, err
	}
	return p, p.client.Subscribe(ctx, id)
}

// do calls f in the loop, and waits for it; if the loop has ended, f may not be called.
func (s *swarm) do(f func()) {
	done := make(chan struct{})
	select {
	case s.calls <- func() { f(); close(done) }:
	case <-s.ended:
	}
	select {
	case <-done:
	case <-s.ended:
	}
}

// Which socket of a player an event of the epoll is about.
const (
	ofRelay int32 = iota
	ofGateway
)

// admit takes a player whose sockets are open. The play begins when all have come.
func (s *swarm) admit(number int) error {
	p := s.players[number]
	for which, socket := range map[int32]*crowd.Socket{ofRelay: &p.relay, ofGateway: &p.gateway} {
		if err := unix.SetNonblock(socket.FD, true); err != nil {
			return err
		}
		// Edges: the kernel need not look a second time at a socket that was read.
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET, Fd: int32(number), Pad: which}
		if err := unix.EpollCtl(s.poll, unix.EPOLL_CTL_ADD, socket.FD, &event); err != nil {
			return err
		}
	}
	if s.arrived++; s.arrived == len(s.players) {
		s.begin(time.Now())
	}
	return p.subscribe()
}

// begin spreads the players' acts over the time between two.
func (s *swarm) begin(now time.Time) {
	for i, p := range s.players {
		p.due = now.Add(s.every + s.every*time.Duration(i)/time.Duration(len(s.players)))
	}
}

// rest is for how long the loop lets everything wait, so that it finds more to do at once. What a player is sent
// meanwhile counts as late.
const rest = 2 * time.Millisecond

// pause rests. Once all have come the thread sleeps as it is: Go's scheduler would find nothing else to run, and would
// wake a thread of its own each time to see whether that is so. The pictures' clients, in goroutines of their own, then
// have their turn when the runtime looks at the network by itself, each 10 ms.
func (s *swarm) pause() {
	if s.arrived < len(s.players) {
		time.Sleep(rest)
		return
	}
	t := unix.NsecToTimespec(int64(rest))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
	runtime.Gosched()
}

// run serves all sockets and lets the players act, until ctx ends or a player cannot go on.
func (s *swarm) run(ctx context.Context) error {
	defer close(s.ended)
	events := make([]unix.EpollEvent, 512)
	for ctx.Err() == nil {
		n, err := unix.EpollWait(s.poll, events, 0)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			if err := s.serve(s.players[e.Fd], &e); err != nil {
				return err
			}
		}
		for more := true; more; {
			select {
			case f := <-s.calls:
				f()
			default:
				more = false
			}
		}
		if err := s.act(time.Now()); err != nil {
			return err
		}
		if n < len(events) {
			s.pause()
		}
	}
	return nil
}

func (s *swarm) serve(p *player, e *unix.EpollEvent) error {
	from, socket, take := "the relay", &p.relay, p.seen
	if e.Pad == ofGateway {
		from, socket, take = "the gateway", &p.gateway, p.told
	}
	err := socket.Read(s.buffer[:], take)
	if err == nil && e.Events&^unix.EPOLLIN != 0 { // the end came behind the last bytes
		err = crowd.ErrClosed
	}
	if err != nil {
		return fmt.Errorf("%s, from %s: %w", p.actor, from, err)
	}
	return nil
}

// act lets those act who are due. They stand in the order of their phases.
func (s *swarm) act(now time.Time) error {
	if s.arrived < len(s.players) {
		return nil
	}
	for range s.players {
		p := s.players[s.next]
		if now.Before(p.due) {
			return nil
		}
		if err := p.act(now); err != nil {
			return fmt.Errorf("%s: %w", p.actor, err)
		}
		s.next = (s.next + 1) % len(s.players)
	}
	return nil
}

// lag names a player who has an order without outcome, or does not hold its tile's position; nothing if there is none.
func (s *swarm) lag(owners map[fence.TileID]fence.Position) string {
	for _, p := range s.players {
		switch want := owners[p.tile.id]; {
		case p.order.id != 0:
			return p.actor + " has an order without an outcome"
		case p.at != want:
			return fmt.Sprintf("%s holds tile %s at %s, its owner is at %s", p.actor, p.tile.id, p.at, want)
		case p.tile.broken.Load() != nil:
			return fmt.Sprintf("the picture of tile %s: %v", p.tile.id, *p.tile.broken.Load())
		}
	}
	return ""
}

// tiles are those on which players are.
func (s *swarm) tiles() (tiles []fence.TileID) {
	for _, p := range s.players {
		if !slices.Contains(tiles, p.tile.id) {
			tiles = append(tiles, p.tile.id)
		}
	}
	return tiles
}
