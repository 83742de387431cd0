package gossip

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"log/slog"
	random "math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait"
)

const (
	nameSuffix     = 1 + 16 // what a name has more than the contact
	retransmitMult = 4
	packetSize     = 1400 // bytes of UDP payload

	// toTheDead is how long memberlist remembers a dead member, in probe intervals. Meanwhile it notifies that member,
	// which can refute it, and a member that has not heard of the death cannot bring it back: all learn of it within
	// a few intervals of gossip. Longer is worse: memberlist counts the remembered dead among the members that could
	// confirm a suspicion. In a small group that had three members die or leave, the next death would be detected six
	// times as late.
	toTheDead = 10
)

// Node is this process's part in the gossip. It is a route.Membership. Create one with New. Safe for
// concurrent use.
type Node struct {
	contact  string
	name     string
	table    *route.Table
	settings settings

	members *members
	queue   *queue
	state   state
	counts  counts
	load    load
	warn    rate.Sometimes // refusals: a broken peer must not fill the log

	ran   atomic.Bool
	ready chan struct{} // closed when addr is set
	addr  string

	toTheDead time.Duration
	// lookup resolves the names of seeds; tests have other names.
	lookup func(ctx context.Context, host string) ([]string, error)
	// between is put between memberlist and the network by tests.
	between func(memberlist.NodeAwareTransport) memberlist.NodeAwareTransport
}

type counts struct {
	packets, packetNews, states, stateNews, refused atomic.Uint64
}

// Stats counts what a node did since it was made.
type Stats struct {
	Packets    uint64 // messages with announcements that arrived
	PacketNews uint64 // entries among them that changed the table
	States     uint64 // maps of other members that arrived
	StateNews  uint64 // entries among them that changed the table
	Refused    uint64 // messages that were malformed, or of another version
	Queued     int    // entries waiting to be spread, or to be spread again
}

// New returns a node for the process that takes intents at contact. It learns into table, and spreads what is
// in it. It does no I/O and starts nothing. Errors: a *fence.ArgumentError.
func New(contact string, table *route.Table, cfg *Config) (*Node, error) {
	s, err := cfg.settings()
	if err != nil {
		return nil, err
	}
	if err := route.ValidateContact(contact); err != nil {
		return nil, err
	}
	if table == nil {
		return nil, &fence.ArgumentError{Field: "table", Value: nil, Want: "a route.Table"}
	}
	var life [8]byte
	_, _ = rand.Read(life[:]) // crypto/rand.Read never fails
	n := &Node{contact: contact, name: contact + "#" + hex.EncodeToString(life[:]), table: table, settings: s,
		queue: newQueue(), state: state{limit: maxState}, load: load{changed: make(chan struct{}, 1)},
		warn:      rate.Sometimes{First: 10, Interval: 10 * time.Second},
		ready:     make(chan struct{}),
		toTheDead: toTheDead * s.Timing.ProbeInterval, lookup: net.DefaultResolver.LookupHost}
	n.members = newMembers(n.name)
	return n, nil
}

// Ready is closed when Run is listening and Addr can be called.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// Addr returns the address the others know this node by, once Ready is closed; empty before.
func (n *Node) Addr() string {
	select {
	case <-n.ready:
		return n.addr
	default:
		return ""
	}
}

// Members implements route.Membership.
func (n *Node) Members() []route.Member { return n.members.list() }

// Announce implements route.Membership.
func (n *Node) Announce(entries ...route.Entry) error {
	for _, e := range entries {
		if err := e.Validate(); err != nil {
			return err
		}
	}
	n.queue.push(n.table.Learn(entries...)...)
	return nil
}

// AnnounceLoad implements route.Membership. The others hear of the last load, at most once in a second.
func (n *Node) AnnounceLoad(l route.Load) error {
	if err := l.Validate(); err != nil {
		return err
	}
	n.load.set(l)
	return nil
}

// Stats returns the counts. They are read one after the other, so they may differ by what is going on.
func (n *Node) Stats() Stats {
	return Stats{Packets: n.counts.packets.Load(), PacketNews: n.counts.packetNews.Load(),
		States: n.counts.states.Load(), StateNews: n.counts.stateNews.Load(), Refused: n.counts.refused.Load(),
		Queued: n.queue.len()}
}

// Run implements route.Membership. It fails if it cannot listen; it retries members that cannot be reached for as long
// as it runs. When ctx is done it notifies the others that it leaves and returns nil, within five seconds (two with
// Fast) and the time that Notify still takes. memberlist does not interrupt a probe that is under way; such a probe
// ends by itself within seconds and changes nothing. A second call returns fence.ErrAlreadyRun.
func (n *Node) Run(ctx context.Context) error {
	if n.ran.Swap(true) {
		return fmt.Errorf("gossip node %s: %w", n.name, fence.ErrAlreadyRun)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	list, err := n.open(life)
	if err != nil {
		return err
	}
	n.addr = list.LocalNode().Address()
	close(n.ready)
	n.settings.Logger.Info("gossip: listening", "addr", n.addr, "name", n.name)
	if len(n.settings.SecretKeys) == 0 {
		n.settings.Logger.Warn("gossip has no SecretKeys: every process that reaches the port is believed",
			"addr", n.addr)
	}

	var owned sync.WaitGroup
	defer owned.Wait()
	owned.Go(func() { n.members.deliver(life, n.settings.Notify) })
	owned.Go(func() { n.load.spread(ctx, list) })
	joined := make(chan struct{})
	owned.Go(func() {
		defer close(joined)
		n.rejoin(ctx, list)
	})
	<-ctx.Done()
	// A member that this node is just joining may know this node already, and not be known yet.
	timeout := n.settings.Timing.leave / 2
	select {
	case <-joined:
	case <-time.After(timeout):
	}
	n.leave(list, timeout)
	end()
	n.members.end()
	return list.Shutdown()
}

func (n *Node) open(life context.Context) (*memberlist.Memberlist, error) {
	logger := logLines(n.settings.Logger)
	t, err := listen(life, n.settings.bind, logger)
	if err != nil {
		return nil, fmt.Errorf("gossip: listening on %s: %w", n.settings.Bind, err)
	}
	c := n.memberlistConfig(t, logger)
	if keys := n.settings.SecretKeys; len(keys) > 0 {
		if c.Keyring, err = memberlist.NewKeyring(keys, keys[0]); err != nil {
			return nil, errors.Join(fmt.Errorf("gossip: %w", err), t.Shutdown())
		}
	}
	list, err := memberlist.Create(c)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("gossip: %w", err), t.Shutdown())
	}
	return list, nil
}

func (n *Node) memberlistConfig(t *transport, logger *log.Logger) *memberlist.Config {
	c := memberlist.DefaultLANConfig()
	c.Name = n.name
	c.Label = n.settings.Label
	c.Logger = logger
	c.Transport = t
	if n.between != nil {
		c.Transport = n.between(t)
	}
	c.BindPort = t.GetAutoBindPort()
	if a := n.settings.advertise; a.IsValid() {
		c.AdvertiseAddr, c.AdvertisePort = a.Addr().String(), cmp.Or(int(a.Port()), c.BindPort)
	}
	c.ProbeInterval, c.ProbeTimeout = n.settings.Timing.ProbeInterval, n.settings.Timing.ProbeTimeout
	c.GossipInterval, c.PushPullInterval = n.settings.Timing.gossip, n.settings.Timing.pushPull
	c.TCPTimeout = n.settings.Timing.stream
	c.RetransmitMult = retransmitMult
	c.GossipToTheDeadTime = n.toTheDead
	c.UDPBufferSize = packetSize
	c.EnableCompression = false // the map is compact, and LZW takes longer than the network
	c.Delegate, c.Events, c.Alive = delegate{n}, n.members, n.members
	return c
}

// firstRejoin is the pause after the first attempt to reach the seeds; each failure doubles it, up to Timing.rejoin.
// Processes that are started together find each other that soon.
const firstRejoin = 250 * time.Millisecond

// seedsSilent is for how long no seed must answer before it is logged.
const seedsSilent = 2 * time.Second

// rejoin joins the seeds that are not members and the members that died: a partition that lasts longer than
// memberlist remembers the dead would not heal otherwise.
func (n *Node) rejoin(ctx context.Context, list *memberlist.Memberlist) {
	begun, said := time.Now(), false
	lived := n.members.contacts()
	for pause := firstRejoin; ctx.Err() == nil; pause *= 2 {
		addrs, failed := n.resolveSeeds(ctx)
		for _, addr := range append(addrs, n.members.someLost()) {
			if addr == "" || addr == n.addr || n.members.has(addr) || ctx.Err() != nil {
				continue
			}
			if _, err := list.Join([]string{addr}); err != nil {
				failed = cmp.Or(errors.Unwrap(err), err) // without memberlist's list of one
			}
		}
		switch alone := n.members.count() <= 1 && failed != nil; {
		case !alone:
			begun, said = time.Now(), false
		case time.Since(begun) >= seedsSilent && !said && ctx.Err() == nil:
			said = true
			n.settings.Logger.Warn("gossip: no seed answers; retrying", "seeds", n.settings.Seeds, "error", failed,
				"look_for", "other SecretKeys or another Label, or UDP and TCP of the port that are not let through")
		}
		if failed == nil || pause > n.settings.Timing.rejoin {
			pause = n.settings.Timing.rejoin
		}
		lived = n.forget(lived)
		wait.For(ctx, pause)
	}
}

// forget removes the entries of members that were dead at this call and the one before: until then a process that hears
// of a death can look up what the member had. It returns the contacts of those that live.
func (n *Node) forget(lived map[string]bool) (lives map[string]bool) {
	lives = n.members.contacts()
	if n.table.Known == nil {
		return lives
	}
	gone := n.table.Forget(func(c string) bool { return c == n.contact || lives[c] || lived[c] })
	if gone > 0 {
		n.settings.Logger.Info("gossip: forgot the tiles of members that have gone", "tiles", gone)
	}
	return lives
}

// resolveSeeds returns the seeds' IP addresses, with ports, in an order of chance, and why a seed has none. Of many
// that a name still has, some may be dead, and an attempt on one takes up to Timing.stream.
func (n *Node) resolveSeeds(ctx context.Context) (addrs []string, failed error) {
	for _, seed := range n.settings.Seeds {
		host, port, _ := net.SplitHostPort(seed) // settings has checked it
		ips, err := n.lookup(ctx, host)
		if err != nil {
			failed = err
		}
		for _, ip := range ips {
			addrs = append(addrs, net.JoinHostPort(ip, port))
		}
	}
	random.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	return addrs, failed
}

// leave notifies the others that this node leaves: a farewell to each member directly and, in case one is lost, by
// gossip; then, when they have had time to arrive, by memberlist's own means, which look like a death.
func (n *Node) leave(list *memberlist.Memberlist, timeout time.Duration) {
	msg := encodeFarewell(n.name)
	n.queue.say(msg)
	for _, to := range list.Members() {
		if to.Name != n.name {
			_ = list.SendBestEffort(to, msg) // gossip is the second way
		}
	}
	settle := min(2*n.settings.Timing.gossip, timeout/2)
	time.Sleep(settle)
	if err := list.Leave(timeout - settle); err != nil {
		n.settings.Logger.Debug("gossip: leave failed", "error", err)
	}
}

// refuse counts and logs a message that changed nothing.
func (n *Node) refuse(what string, size int, err error) {
	total := n.counts.refused.Add(1)
	n.warn.Do(func() {
		n.settings.Logger.Warn("gossip: refused bytes from a peer", "what", what, "bytes", size, "error", err, "total",
			total)
	})
}

// Join implements route.Joiner: it makes a Node with this configuration. log is for a c without a Logger; notify is
// called after c.Notify.
func (c Config) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	c.Logger = cmp.Or(c.Logger, log)
	if first := c.Notify; first != nil && notify != nil {
		c.Notify = func(e route.Event) { first(e); notify(e) }
	} else if notify != nil {
		c.Notify = notify
	}
	n, err := New(contact, table, &c)
	if err != nil {
		return nil, err // not a nil *Node in an interface
	}
	return n, nil
}
