package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence/route"
)

// member is a host's part in the gossip of a battle in one process, with what chaos breaks of it: it joins again after
// it was cut off. It is a route.Joiner for that host, and its route.Membership.
type member struct {
	group    *route.Group
	contact  string
	join     func() (route.Membership, error)
	notify   func(route.Event)
	rejoined chan struct{} // has room for one

	mu     sync.Mutex
	life   *route.GroupMember // the one under way, or the last
	dying  *time.Timer        // ends it
	parted chan struct{}      // closed when part has ended it
}

func newMember(g *route.Group) *member { return &member{group: g, rejoined: make(chan struct{}, 1)} }

// Join implements route.Joiner.
func (m *member) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	m.contact, m.notify = contact, notify
	m.join = func() (route.Membership, error) { return m.group.Join(contact, table, log, notify) }
	return m, m.begin()
}

// begin prepares another life.
func (m *member) begin() error {
	life, err := m.join()
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.life = life.(*route.GroupMember)
	return nil
}

// Run implements route.Membership.
func (m *member) Run(ctx context.Context) error {
	for {
		if err := m.now().Run(ctx); err != nil || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-m.rejoined:
		}
	}
}

// Announce implements route.Membership.
func (m *member) Announce(entries ...route.Entry) error { return m.now().Announce(entries...) }

// Members implements route.Membership.
func (m *member) Members() []route.Member { return m.now().Members() }

func (m *member) now() *route.GroupMember {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// noticeAfter is when the members of a group hear that one is gone: gossip.Fast takes about as long.
const noticeAfter = time.Second

// fade lets the others hear in a while that the member died.
func (m *member) fade() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dying = time.AfterFunc(noticeAfter, m.life.Kill)
}

// die lets them hear it now, if they have not: the next life of the process is not taken for this one.
func (m *member) die() {
	if m.dying.Stop() {
		m.now().Kill()
	}
}

// part lets the member and the others presume each other dead in a while, as when the network between them breaks.
func (m *member) part() {
	m.mu.Lock()
	defer m.mu.Unlock()
	life, parted := m.life, make(chan struct{})
	m.parted = parted
	m.dying = time.AfterFunc(noticeAfter, func() {
		defer close(parted)
		others := life.Members()
		life.Kill()
		for _, other := range others {
			if other.Contact != m.contact {
				m.notify(route.Event{Kind: route.Died, Member: other})
			}
		}
	})
}

// rejoin ends what part began.
func (m *member) rejoin() error {
	if m.dying.Stop() {
		return nil // none had noticed
	}
	<-m.parted
	if err := m.begin(); err != nil {
		return err
	}
	m.rejoined <- struct{}{}
	return nil
}
