package gossip_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/routetest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// TestKeysAreReplaced: members of two neighbouring steps of a replacement know each other. Those that skip one do not.
func TestKeysAreReplaced(t *testing.T) {
	t.Parallel()
	older, newer := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 16)
	steps := [][][]byte{{older}, {older, newer}, {newer, older}, {newer}}
	for i, keys := range steps {
		for j, others := range steps[i:] {
			t.Run(fmt.Sprint("steps ", i, " and ", i+j), func(t *testing.T) {
				t.Parallel()
				n := newNetwork()
				n.keys = keys
				seed := n.node(t, "a:1", new(route.Table), nil)
				n.run(t, seed)
				n.keys = others
				other := n.node(t, "b:1", new(route.Table), nil)
				n.run(t, other)
				both := func() bool { return len(seed.Members()) == 2 && len(other.Members()) == 2 }
				if j <= 1 {
					waittest.Until(t, both, routetest.Patience, 10*time.Millisecond)
				} else {
					require.True(t, waittest.Holds(func() bool { return !both() }, time.Second, 10*time.Millisecond))
				}
			})
		}
	}
}

// TestASeedsNameIsLookedUpAnew: of a name whose addresses change, as that of a Kubernetes service does, the node finds
// the members of the moment. At first the name has none.
func TestASeedsNameIsLookedUpAnew(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("needs loopback addresses that only Linux has")
	}
	var mu sync.Mutex
	var addresses []string
	set := func(to ...string) {
		mu.Lock()
		defer mu.Unlock()
		addresses = to
	}
	node, err := gossip.New("a:1", new(route.Table), &gossip.Config{Bind: "127.0.0.1:0", Timing: gossip.Fast(),
		Seeds: []string{"tiles.game.svc:7946"}})
	require.NoError(t, err)
	node.Lookup(func(_ context.Context, host string) ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		if host != "tiles.game.svc" || addresses == nil {
			return nil, errors.New("no such host")
		}
		return addresses, nil
	})
	n := newNetwork()
	n.run(t, node)
	var lives []func()
	for range 2 {
		host := fmt.Sprintf("127.%d.%d.1", 64+rand.IntN(128), rand.IntN(256))
		seed, err := gossip.New("b:1", new(route.Table), &gossip.Config{Bind: host + ":7946", Timing: gossip.Fast()})
		require.NoError(t, err)
		lives = append(lives, n.run(t, seed))
		require.Len(t, node.Members(), 1, "it is not known under any name yet")
		set("127.0.0.1", host) // nothing listens at the first
		waittest.Until(t, func() bool { return len(node.Members()) == 2 }, routetest.Patience, 10*time.Millisecond)
		lives[len(lives)-1]()
		waittest.Until(t, func() bool { return len(node.Members()) == 1 }, routetest.Patience, 10*time.Millisecond)
	}
}

// TestAdvertisedAtTheBoundPort is for a process that lets the system choose the port, and knows only its host.
func TestAdvertisedAtTheBoundPort(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	seed, err := gossip.New("a:1", new(route.Table),
		&gossip.Config{Bind: "0.0.0.0:0", Advertise: "127.0.0.1:0", Timing: gossip.Fast()})
	require.NoError(t, err)
	n.run(t, seed)
	host, port, err := net.SplitHostPort(seed.Addr())
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", host)
	require.NotEqual(t, "0", port)
	other, err := gossip.New("b:1", new(route.Table),
		&gossip.Config{Bind: "127.0.0.1:0", Seeds: []string{seed.Addr()}, Timing: gossip.Fast()})
	require.NoError(t, err)
	n.run(t, other)
	waittest.Until(t, func() bool { return len(seed.Members()) == 2 && len(other.Members()) == 2 }, routetest.Patience,
		10*time.Millisecond)
}
