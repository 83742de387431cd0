// Package natstest runs NATS servers inside a test process: one, or a cluster whose nodes can be killed, restarted and
// stopped. Only tests import it.
package natstest

import (
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// patience is how long a node may take to start, on a slow machine under load.
const patience = time.Minute

// Node is one server. Its address stays the same when it is restarted.
type Node struct {
	t       testing.TB
	options server.Options
	server  *server.Server
}

// Start runs a server until the end of the test. change, which may be nil, edits its options first.
func Start(t testing.TB, change func(*server.Options)) *Node {
	n := newNode(t, "single", change)
	n.begin(false)
	return n
}

// StartCluster runs a full mesh of so many nodes until the end of the test.
func StartCluster(t testing.TB, nodes int, change func(*server.Options)) []*Node {
	var cluster []*Node
	var routes []*url.URL
	for i := range nodes {
		n := newNode(t, fmt.Sprintf("node-%d", i+1), change)
		n.options.Routes = slices.Clone(routes) // the later nodes connect to it
		n.begin(true)
		routes = append(routes, &url.URL{Scheme: "nats",
			Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(n.options.Cluster.Port))})
		cluster = append(cluster, n)
	}
	for _, n := range cluster {
		n.options.Routes = routes // when it is restarted, it looks for all
		n.AwaitPeers(nodes - 1)
	}
	return cluster
}

func newNode(t testing.TB, name string, change func(*server.Options)) *Node {
	n := &Node{t: t, options: server.Options{ServerName: name, Host: "127.0.0.1", NoLog: true,
		NoSigs: true, MaxPayload: 2 * fence.MaxPayload, MaxPending: 64 << 20}}
	if change != nil {
		change(&n.options)
	}
	t.Cleanup(n.Kill)
	return n
}

// begin starts the node for the first time, on ports that it keeps. Another process can take a port between the look
// for a free one and the server's start; the server then waits for ever, and the node tries others.
func (n *Node) begin(clustered bool) {
	n.t.Helper()
	for range 5 {
		n.options.Port = stacktest.FreePort(n.t)
		if clustered {
			n.options.Cluster = server.ClusterOpts{Name: "test", Host: "127.0.0.1", Port: stacktest.FreePort(n.t)}
		}
		if n.start(patience / 4) {
			return
		}
	}
	require.Fail(n.t, "the server does not start")
}

// URL is where clients connect.
func (n *Node) URL() string {
	return "nats://" + net.JoinHostPort(n.options.Host, strconv.Itoa(n.options.Port))
}

// Server is the running server, for its figures.
func (n *Node) Server() *server.Server { return n.server }

// Kill stops the node at once, without a word to its clients. It is safe to call twice.
func (n *Node) Kill() {
	if n.server != nil {
		n.server.Shutdown()
		n.server.WaitForShutdown()
		n.server = nil
	}
}

// Restart starts the node, killing it before if it runs.
func (n *Node) Restart() {
	n.t.Helper()
	require.True(n.t, n.start(patience), "the server does not start again")
}

// start reports whether the node takes connections within the time.
func (n *Node) start(within time.Duration) bool {
	n.t.Helper()
	n.Kill()
	options := n.options // the server changes them
	s, err := server.NewServer(&options)
	require.NoError(n.t, err)
	n.server = s
	s.Start()
	return s.ReadyForConnections(within)
}

// AwaitPeers waits until the node has routes to so many others.
func (n *Node) AwaitPeers(peers int) {
	n.t.Helper()
	waittest.Until(n.t, func() bool {
		routed, err := n.server.Routez(nil)
		if err != nil {
			return false
		}
		seen := map[string]bool{}
		for _, r := range routed.Routes {
			seen[r.RemoteID] = true
		}
		return len(seen) == peers
	}, patience, 10*time.Millisecond, "the cluster does not form")
}

// Hears reports whether the node knows of a subscription to the subject, its own or another node's.
func (n *Node) Hears(subject string) bool {
	account := n.server.GlobalAccount()
	return account != nil && account.SubscriptionInterest(subject)
}
