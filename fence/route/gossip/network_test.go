package gossip_test

import (
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/routetest"
)

var _ route.Membership = (*gossip.Node)(nil)

// memberlist does not interrupt a probe that is under way when it is shut down. It ends by itself.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/hashicorp/memberlist.(*Memberlist).probeNode"))
}

// network is members on this machine's loopback that can be cut off from each other.
type network struct {
	timing gossip.Timing
	label  string // a port that one test has given up may be another's next
	limit  int    // of a map, if not zero
	keys   [][]byte
	slow   time.Duration // before what a peer answers on a connection is read

	mu    sync.Mutex
	nodes []*gossip.Node
	side  map[string]int // by address; those of different sides do not hear each other
	mute  string         // address of one whose packets are lost
}

func newNetwork() *network {
	return &network{timing: gossip.Fast(), label: rand.Text(), side: make(map[string]int)}
}

// silent is a side on which not even its members hear each other.
const silent = -1

func (n *network) cut(side int, nodes ...*gossip.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, node := range nodes {
		n.side[node.Addr()] = side
	}
}

func (n *network) connected(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.side[from] == n.side[to] && n.side[from] != silent
}

func (n *network) silencePackets(from *gossip.Node) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mute = from.Addr()
}

// packets reports whether packets get through.
func (n *network) packets(from, to string) bool {
	n.mu.Lock()
	mute := n.mute
	n.mu.Unlock()
	return n.connected(from, to) && (mute == "" || from != mute)
}

// Member implements routetest.Network.
func (n *network) Member(
	t *testing.T, contact string, table *route.Table, notify func(route.Event),
) (route.Membership, func()) {
	node := n.node(t, contact, table, notify)
	return node, func() { n.cut(silent, node) }
}

func (n *network) node(t testing.TB, contact string, table *route.Table, notify func(route.Event)) *gossip.Node {
	t.Helper()
	var seeds []string
	for _, other := range n.nodes {
		seeds = append(seeds, addrOf(t, other))
	}
	node, err := gossip.New(contact, table, &gossip.Config{Bind: "127.0.0.1:0", Seeds: seeds, Timing: n.timing,
		Label: n.label, SecretKeys: n.keys, Notify: notify})
	require.NoError(t, err)
	if n.limit > 0 {
		node.LimitState(n.limit)
	}
	node.Between(func(inner memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		return &wire{NodeAwareTransport: inner, from: node.Addr, connected: n.connected, packets: n.packets,
			slow: n.slow}
	})
	n.nodes = append(n.nodes, node)
	return node
}

func addrOf(t testing.TB, node *gossip.Node) string {
	t.Helper()
	select {
	case <-node.Ready():
	case <-time.After(routetest.Patience):
		t.Fatal("a node does not get ready")
	}
	return node.Addr()
}

// wire is a node's way to the others.
type wire struct {
	memberlist.NodeAwareTransport
	from      func() string
	connected func(from, to string) bool
	packets   func(from, to string) bool
	slow      time.Duration
}

var errCut = errors.New("the network is cut")

func (w *wire) WriteTo(b []byte, to string) (time.Time, error) {
	return w.WriteToAddress(b, memberlist.Address{Addr: to})
}

func (w *wire) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if !w.packets(w.from(), to.Addr) {
		return time.Now(), nil // lost on the way
	}
	return w.NodeAwareTransport.WriteToAddress(b, to)
}

func (w *wire) DialTimeout(to string, timeout time.Duration) (net.Conn, error) {
	return w.DialAddressTimeout(memberlist.Address{Addr: to}, timeout)
}

func (w *wire) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if !w.connected(w.from(), to.Addr) {
		return nil, errCut
	}
	conn, err := w.NodeAwareTransport.DialAddressTimeout(to, timeout)
	if err == nil && w.slow > 0 {
		conn = &slowConn{Conn: conn, delay: w.slow}
	}
	return conn, err
}

// slowConn is a connection whose answers take their time.
type slowConn struct {
	net.Conn
	delay time.Duration
}

func (c *slowConn) Read(b []byte) (int, error) {
	time.Sleep(c.delay)
	return c.Conn.Read(b)
}
