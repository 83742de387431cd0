package route

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// Group is a membership within one process: for tests, for local development, and for a deployment that is
// one process. Announcements arrive at once; Kill makes a member die. The zero value is a group without members.
type Group struct {
	mu      sync.Mutex
	members []*GroupMember // those that run
	lives   int
}

// GroupMember is one process of a group. It is a Membership.
type GroupMember struct {
	group  *Group
	table  *Table
	notify func(Event)

	self   Member
	ran    bool          // guarded by the group's lock
	load   Load          // the same
	kill   sync.Once     // closes killed
	killed chan struct{} // closed: no sign of life any more

	mu    sync.Mutex
	queue []Event
	wake  chan struct{} // has room for one
}

// NewMember prepares a member that learns into table. notify is called for each event, see Event; nil
// ignores them. Errors: a *fence.ArgumentError.
func (g *Group) NewMember(contact string, table *Table, notify func(Event)) (*GroupMember, error) {
	if err := ValidateContact(contact); err != nil {
		return nil, err
	}
	if table == nil {
		return nil, &fence.ArgumentError{Field: "table", Value: nil, Want: "a Table"}
	}
	if notify == nil {
		notify = func(Event) {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lives++
	return &GroupMember{group: g, table: table, notify: notify, killed: make(chan struct{}),
		wake: make(chan struct{}, 1), self: Member{Contact: contact, Name: fmt.Sprintf("%s#%d", contact, g.lives)}}, nil
}

// Run implements Membership. A member that is killed returns nil, too.
func (m *GroupMember) Run(ctx context.Context) error {
	if err := m.join(); err != nil {
		return err
	}
	defer func() { m.group.remove(m, m.end()) }() // does nothing if Kill was first
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-m.killed:
			return nil
		case <-m.wake:
			m.deliver(ctx)
		}
	}
}

// end is the event of a member whose Run returns, which may be before Kill has notified the others.
func (m *GroupMember) end() EventKind {
	select {
	case <-m.killed:
		return Died
	default:
		return Left
	}
}

func (m *GroupMember) join() error {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.ran {
		return fmt.Errorf("group member %s: %w", m.self.Name, fence.ErrAlreadyRun)
	}
	m.ran = true
	select {
	case <-m.killed:
		return nil
	default:
	}
	for _, other := range g.members {
		other.enqueue(Event{Kind: Joined, Member: m.self})
		m.enqueue(Event{Kind: Joined, Member: other.self})
		other.table.Learn(m.table.Snapshot()...)
		m.table.Learn(other.table.Snapshot()...)
	}
	g.members = append(g.members, m)
	return nil
}

// Kill ends the member as a killed process ends: it does not say that it leaves, and the others see it die.
func (m *GroupMember) Kill() {
	m.kill.Do(func() { close(m.killed) })
	m.group.remove(m, Died)
}

func (g *Group) remove(m *GroupMember, kind EventKind) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.Index(g.members, m)
	if i < 0 {
		return
	}
	g.members = slices.Delete(g.members, i, i+1)
	for _, other := range g.members {
		other.enqueue(Event{Kind: kind, Member: m.self})
	}
}

// Announce implements Membership.
func (m *GroupMember) Announce(entries ...Entry) error {
	for _, e := range entries {
		if err := e.Validate(); err != nil {
			return err
		}
	}
	news := m.table.Learn(entries...)
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.members, m) {
		return nil // join brings it
	}
	for _, other := range g.members {
		other.table.Learn(news...)
	}
	return nil
}

// AnnounceLoad implements Membership.
func (m *GroupMember) AnnounceLoad(l Load) error {
	if err := l.Validate(); err != nil {
		return err
	}
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	m.load = l
	return nil
}

// Members implements Membership.
func (m *GroupMember) Members() []Member {
	g := m.group
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.Contains(g.members, m) {
		return nil
	}
	all := make([]Member, 0, len(g.members))
	for _, other := range g.members {
		with := other.self
		with.Load = other.load
		all = append(all, with)
	}
	slices.SortFunc(all, CompareMembers)
	return all
}

// CompareMembers orders members by contact and name.
func CompareMembers(a, b Member) int {
	return cmp.Or(cmp.Compare(a.Contact, b.Contact), cmp.Compare(a.Name, b.Name))
}

func (m *GroupMember) enqueue(e Event) {
	m.mu.Lock()
	m.queue = append(m.queue, e)
	m.mu.Unlock()
	wait.Wake(m.wake)
}

// deliver calls notify for what is queued, without any lock: it may call back.
func (m *GroupMember) deliver(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-m.killed:
			return
		default:
		}
		m.mu.Lock()
		if len(m.queue) == 0 {
			m.mu.Unlock()
			return
		}
		e := m.queue[0]
		m.queue = m.queue[1:]
		m.mu.Unlock()
		m.notify(e)
	}
}

// Joiner makes processes members of one group. *Group is one, and so is gossip.Config.
type Joiner interface {
	// Join returns the part in the group of the process that takes intents at contact. What owners announce
	// is learned into table; notify, which may be nil, is called for each event, see Event. log takes what an operator
	// should read, unless the Joiner has a logger of its own; nil discards. Join does no I/O: the process takes part
	// while the Membership runs. Errors: a *fence.ArgumentError.
	Join(contact string, table *Table, log *slog.Logger, notify func(Event)) (Membership, error)
}

// Join implements Joiner. A Group has nothing to log.
func (g *Group) Join(contact string, table *Table, _ *slog.Logger, notify func(Event)) (Membership, error) {
	if g == nil {
		return nil, &fence.ArgumentError{Field: "Members", Value: "a nil *route.Group", Want: "new(route.Group)"}
	}
	m, err := g.NewMember(contact, table, notify)
	if err != nil {
		return nil, err // not a nil *GroupMember in an interface
	}
	return m, nil
}
