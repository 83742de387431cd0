//go:build unix

package campaign

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/internal/faultinject"
)

// member is a server of the world. When it is killed another one takes its place, at the same address.
type member struct {
	kind, host string
	gossips    bool
	serves     bool // it has clients of its own
	open       func(m *member) (tilefence.Server, error)
	again      func() error // start, until the run ends

	addr    string // for clients
	lives   int
	process *process
	clients *faultinject.Listener
	stop    context.CancelFunc
	ended   chan struct{} // closed when the server has ended
}

// name is that of a member's present life.
func (m *member) name() string { return fmt.Sprintf("%s %s#%d", m.kind, m.host, m.lives) }

// start opens the member's next life, which lasts until ctx ends.
func (m *member) start(ctx context.Context, s *servers) (err error) {
	gossips := ""
	if m.gossips {
		gossips = m.host + ":0"
	}
	if m.process, err = s.connect(ctx, m.host, gossips); err != nil {
		return err
	}
	m.lives++
	if m.serves {
		l, err := net.Listen("tcp", cmp.Or(m.addr, m.host+":0"))
		if err != nil {
			return err
		}
		m.addr, m.clients = l.Addr().String(), &faultinject.Listener{Listener: l}
	}
	server, err := m.open(m)
	if err != nil {
		if m.serves {
			err = errors.Join(err, m.clients.Close())
		}
		return err
	}
	ctx, m.stop = context.WithCancel(ctx)
	m.ended = make(chan struct{})
	go func() {
		defer close(m.ended)
		_ = tilefence.Run(ctx, server) // what is left undone is no finding: it was killed, or the workers are paused
	}()
	return nil
}

// kill ends the member as SIGKILL does, as far as a part of a process can be killed: no byte that it sends from now on
// arrives at a store, and its clients lose their connections. What it says by gossip still arrives.
func (m *member) kill() {
	for _, to := range []*accidents{&m.process.toRedis, &m.process.toRows, &m.process.toBase, &m.process.toFanout} {
		to.requestsLost.Store(1000)
	}
	if m.serves {
		m.clients.Kill()
	}
	m.end()
}

// end waits until the member has ended, and closes what it used.
func (m *member) end() {
	if m.stop != nil {
		m.stop()
		<-m.ended
		m.stop = nil
	}
	if m.process != nil {
		m.process.close()
		m.process = nil
	}
}
