package faultinject

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence/route"
)

// Member is one process's part in a route.Group, which can be cut off and join again. It is that process's route.Joiner
// and its route.Membership.
type Member struct {
	group    *route.Group
	contact  string
	join     func() (route.Membership, error)
	notify   func(route.Event)
	rejoined chan struct{} // has room for one

	mu     sync.Mutex
	life   *route.GroupMember // the one under way, or the last
	dying  *time.Timer        // ends it
	parted chan struct{}      // closed when Part has ended it
}

// NewMember returns a member of a group that has not joined yet.
func NewMember(g *route.Group) *Member { return &Member{group: g, rejoined: make(chan struct{}, 1)} }

// Join implements route.Joiner.
func (m *Member) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	m.contact, m.notify = contact, notify
	m.join = func() (route.Membership, error) { return m.group.Join(contact, table, log, notify) }
	return m, m.begin()
}

// begin prepares another life.
func (m *Member) begin() error {
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
func (m *Member) Run(ctx context.Context) error {
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
func (m *Member) Announce(entries ...route.Entry) error { return m.now().Announce(entries...) }

// AnnounceLoad implements route.Membership.
func (m *Member) AnnounceLoad(l route.Load) error { return m.now().AnnounceLoad(l) }

// Members implements route.Membership.
func (m *Member) Members() []route.Member { return m.now().Members() }

func (m *Member) now() *route.GroupMember {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.life
}

// noticeAfter is when the members of a group notice that one is gone: gossip.Fast takes about as long.
const noticeAfter = time.Second

// Fade lets the others notice in noticeAfter that the member died.
func (m *Member) Fade() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dying = time.AfterFunc(noticeAfter, m.life.Kill)
}

// Die lets them notice it now, if they have not: the next life of the process is not taken for this one.
func (m *Member) Die() {
	if m.dying.Stop() {
		m.now().Kill()
	}
}

// Part lets the member and the others presume each other dead in noticeAfter, as when the network between them breaks.
func (m *Member) Part() {
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

// Rejoin ends what Part began.
func (m *Member) Rejoin() error {
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
