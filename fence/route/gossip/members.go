package gossip

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait"
)

const (
	lostFor = time.Hour // how long the node tries to reach a member that died
	maxLost = 256       // the most of them
)

// members are the members that memberlist reports. It implements memberlist.EventDelegate and
// memberlist.AliveDelegate, which memberlist calls under its lock: nothing here calls memberlist or blocks.
type members struct {
	self string // name

	mu      sync.Mutex
	ended   bool              // what memberlist still reports is ignored
	alive   map[string]member // by name
	leaving map[string]bool   // those that said that they leave
	lost    map[string]time.Time
	events  []route.Event
	wake    chan struct{} // has room for one
}

type member struct {
	contact, addr string
	load          route.Load
}

func newMembers(self string) *members {
	return &members{self: self, alive: make(map[string]member), leaving: make(map[string]bool),
		lost: make(map[string]time.Time), wake: make(chan struct{}, 1)}
}

// NotifyAlive implements memberlist.AliveDelegate: a member without a contact is of another kind.
func (m *members) NotifyAlive(n *memberlist.Node) error {
	_, _, err := decodeMeta(n.Meta)
	return err
}

// NotifyJoin implements memberlist.EventDelegate.
func (m *members) NotifyJoin(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	contact, load, _ := decodeMeta(n.Meta) // NotifyAlive has found it valid
	m.alive[n.Name] = member{contact: contact, addr: n.Address(), load: load}
	delete(m.lost, n.Address())
	m.tell(route.Joined, n)
}

// NotifyUpdate implements memberlist.EventDelegate. Of a member's meta data only the load changes.
func (m *members) NotifyUpdate(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	contact, load, err := decodeMeta(n.Meta)
	if one, known := m.alive[n.Name]; known && err == nil && contact == one.contact {
		one.load = load
		m.alive[n.Name] = one
	}
}

// NotifyLeave implements memberlist.EventDelegate. It is called for members that left and members that died.
func (m *members) NotifyLeave(n *memberlist.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended {
		return
	}
	delete(m.alive, n.Name)
	if m.leaving[n.Name] {
		delete(m.leaving, n.Name)
		m.tell(route.Left, n)
		return
	}
	if n.Name != m.self && len(m.lost) < maxLost {
		m.lost[n.Address()] = time.Now()
	}
	m.tell(route.Died, n)
}

// tell needs the lock.
func (m *members) tell(kind route.EventKind, n *memberlist.Node) {
	if n.Name == m.self {
		return
	}
	contact, _, _ := decodeMeta(n.Meta)
	m.events = append(m.events, route.Event{Kind: kind, Member: route.Member{Contact: contact, Name: n.Name}})
	wait.Wake(m.wake)
}

// farewell notes that a member is leaving, and reports whether that is news of a living member.
func (m *members) farewell(name string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.alive[name]; !ok || m.leaving[name] || name == m.self {
		return false
	}
	m.leaving[name] = true
	return true
}

// deliver calls notify for each event until ctx is done.
func (m *members) deliver(ctx context.Context, notify func(route.Event)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.wake:
		}
		for _, e := range m.takeEvents() {
			if ctx.Err() != nil {
				return
			}
			notify(e)
		}
	}
}

// end forgets all members: memberlist has timers that outlive it.
func (m *members) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	clear(m.alive)
}

func (m *members) takeEvents() []route.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	events := m.events
	m.events = nil
	return events
}

func (m *members) list() []route.Member {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make([]route.Member, 0, len(m.alive))
	for name, one := range m.alive {
		all = append(all, route.Member{Contact: one.contact, Name: name, Load: one.load})
	}
	slices.SortFunc(all, route.CompareMembers)
	return all
}

func (m *members) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.alive)
}

// contacts are those of the living members, this one among them.
func (m *members) contacts() map[string]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[string]bool, len(m.alive))
	for _, one := range m.alive {
		all[one.contact] = true
	}
	return all
}

// has reports whether a living member has the address.
func (m *members) has(addr string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, one := range m.alive {
		if one.addr == addr {
			return true
		}
	}
	return false
}

// someLost returns the address of one member that died, empty without any.
func (m *members) someLost() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.lost, func(_ string, died time.Time) bool { return time.Since(died) > lostFor })
	if len(m.lost) == 0 {
		return ""
	}
	return slices.Collect(maps.Keys(m.lost))[rand.IntN(len(m.lost))]
}
