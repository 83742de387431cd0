package gossip_test

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/fence/route/gossip"
	"github.com/tilefence/tilefence/internal/routetest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	routetest.Run(t, func(*testing.T) routetest.Network { return newNetwork() })
}

func TestConformanceEncrypted(t *testing.T) {
	t.Parallel()
	routetest.Run(t, func(*testing.T) routetest.Network {
		n := newNetwork()
		n.keys = [][]byte{[]byte("0123456789abcdef")}
		return n
	})
}

func TestArguments(t *testing.T) {
	t.Parallel()
	table := new(route.Table)
	for name, bad := range map[string]*gossip.Config{
		"a host name":           {Bind: "localhost:7946"},
		"no port":               {Bind: "127.0.0.1"},
		"advertised nowhere":    {Advertise: "0.0.0.0:7946"},
		"an empty key":          {SecretKeys: [][]byte{nil}},
		"all of IPv6":           {Bind: "[::]:7946"},
		"a seed without a port": {Seeds: []string{"10.0.0.7"}},
		"a short key":           {SecretKeys: [][]byte{make([]byte, 16), []byte("short")}},
		"a long label":          {Label: string(make([]byte, 256))},
		"negative timing":       {Timing: gossip.Timing{ProbeInterval: -1}},
		"late probes":           {Timing: gossip.Timing{ProbeTimeout: 2 * time.Second}},
	} {
		_, err := gossip.New("a:1", table, bad)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	_, err := gossip.New("", table, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = gossip.New(string(make([]byte, 600)), table, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument, "memberlist panics of meta data of more than 512 bytes")
	_, err = gossip.New("a:1", nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	node, err := gossip.New("a:1", table, nil)
	require.NoError(t, err)
	require.Empty(t, node.Addr())
}

// TestAPortThatIsTaken is the one thing that Run does not try again.
func TestAPortThatIsTaken(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	first := n.node(t, "a:1", new(route.Table), nil)
	n.run(t, first)
	second, err := gossip.New("b:1", new(route.Table), &gossip.Config{Bind: first.Addr()})
	require.NoError(t, err)
	require.Error(t, second.Run(t.Context()))
	require.ErrorIs(t, second.Run(t.Context()), fence.ErrAlreadyRun)
}

// TestASeedThatComesLater: a member does not give up.
func TestASeedThatComesLater(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	place := n.node(t, "x:1", new(route.Table), nil) // to get an address
	n.run(t, place)()
	early, err := gossip.New("a:1", new(route.Table),
		&gossip.Config{Bind: "127.0.0.1:0", Seeds: []string{place.Addr(), "127.0.0.1:1"}, Timing: gossip.Fast()})
	require.NoError(t, err)
	n.run(t, early)
	time.Sleep(200 * time.Millisecond)
	require.Len(t, early.Members(), 1)
	seed, err := gossip.New("b:1", new(route.Table),
		&gossip.Config{Bind: place.Addr(), Seeds: []string{place.Addr()}, Timing: gossip.Fast()})
	require.NoError(t, err)
	n.run(t, seed)
	for _, node := range []*gossip.Node{early, seed} {
		waittest.Until(t, func() bool { return len(node.Members()) == 2 }, routetest.Patience, 10*time.Millisecond)
	}
}

// TestSeedsAreRetriedSoon: processes that start together do not wait as long as for members that are missing.
func TestSeedsAreRetriedSoon(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	place := n.node(t, "x:1", new(route.Table), nil) // to get an address
	n.run(t, place)()
	timing := gossip.Fast().With(gossip.Waits{Rejoin: time.Hour})
	early, err := gossip.New("a:1", new(route.Table),
		&gossip.Config{Bind: "127.0.0.1:0", Seeds: []string{place.Addr()}, Timing: timing})
	require.NoError(t, err)
	n.run(t, early)
	time.Sleep(200 * time.Millisecond) // its first attempt has failed
	seed, err := gossip.New("b:1", new(route.Table), &gossip.Config{Bind: place.Addr(), Timing: timing})
	require.NoError(t, err)
	n.run(t, seed)
	waittest.Until(t, func() bool { return len(early.Members()) == 2 }, routetest.Patience, 10*time.Millisecond)
}

// TestAnotherKeyIsLogged: by a member that no seed answers, through the logger of its server.
func TestAnotherKeyIsLogged(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][][]byte{"none": nil, "another": {make([]byte, 32)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNetwork()
			seed, err := gossip.New("a:1", new(route.Table), &gossip.Config{Bind: "127.0.0.1:0",
				SecretKeys: [][]byte{[]byte("0123456789abcdef")}, Timing: gossip.Fast()})
			require.NoError(t, err)
			n.run(t, seed)
			text := new(lockedText)
			cfg := gossip.Config{Bind: "127.0.0.1:0", SecretKeys: keys, Seeds: []string{seed.Addr()},
				Timing: gossip.Fast()}
			m, err := cfg.Join("b:1", new(route.Table), slog.New(slog.NewTextHandler(text, nil)), nil)
			require.NoError(t, err)
			n.run(t, m.(*gossip.Node))
			waittest.Until(t, func() bool { return strings.Contains(text.String(), "no seed answers") },
				routetest.Patience, 10*time.Millisecond)
			require.Equal(t, keys == nil, strings.Contains(text.String(), "gossip has no SecretKeys"))
		})
	}
}

// TestTheFirstNodeIsNoTrouble: it has no seed, or itself, or none but a process that starts a moment later. Nothing is
// wrong, so nothing is logged that an operator would look at.
func TestTheFirstNodeIsNoTrouble(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	place := n.node(t, "x:1", new(route.Table), nil)
	end := n.run(t, place)
	later := n.node(t, "y:1", new(route.Table), nil) // both for their addresses
	n.run(t, later)()
	end()
	keys := [][]byte{[]byte("0123456789abcdef")}
	text := new(lockedText)
	for name, cfg := range map[string]gossip.Config{
		"no seed":   {Bind: "127.0.0.1:0"},
		"itself":    {Bind: place.Addr(), Seeds: []string{place.Addr()}},
		"too early": {Bind: "127.0.0.1:0", Seeds: []string{later.Addr()}},
	} {
		cfg.SecretKeys, cfg.Timing = keys, gossip.Fast()
		log := slog.New(slog.NewTextHandler(text, &slog.HandlerOptions{Level: slog.LevelWarn})).With("case", name)
		m, err := cfg.Join(strings.ReplaceAll(name, " ", "-")+":1", new(route.Table), log, nil)
		require.NoError(t, err)
		n.run(t, m.(*gossip.Node))
	}
	time.Sleep(500 * time.Millisecond) // the seed that comes later
	seed, err := gossip.New("y:1", new(route.Table), &gossip.Config{Bind: later.Addr(), SecretKeys: keys,
		Timing: gossip.Fast()})
	require.NoError(t, err)
	n.run(t, seed)
	require.True(t, waittest.Holds(func() bool { return text.String() == "" }, 3*time.Second, 50*time.Millisecond),
		text.String())
}

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// TestAPeerThatDoesNotAnswer does not keep Run from ending.
func TestAPeerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	timing := gossip.Fast().With(gossip.Waits{Stream: time.Hour})
	node, err := gossip.New("a:1", new(route.Table),
		&gossip.Config{Bind: "127.0.0.1:0", Seeds: []string{silent.Addr().String()}, Timing: timing})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	conn, err := silent.Accept() // it is being joined
	require.NoError(t, err)
	defer conn.Close()
	stop()
	select {
	case err := <-ended:
		require.NoError(t, err)
	case <-time.After(routetest.Patience):
		t.Fatal("Run waits for a peer")
	}
}

// TestLeavingWhileJoining: the seed knows the member already, and the member has not heard from it yet.
func TestLeavingWhileJoining(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	heard := new(events)
	usual := n.timing
	n.timing.ProbeInterval = time.Hour // what cannot answer probes is not dead
	seed := n.node(t, "a:1", new(route.Table), heard.add)
	n.timing = usual
	n.run(t, seed)
	n.silencePackets(seed) // or it would be heard that way
	n.slow = 300 * time.Millisecond
	hasty := n.node(t, "b:1", new(route.Table), nil)
	end := n.run(t, hasty)
	waittest.Until(t, func() bool { return len(seed.Members()) == 2 }, routetest.Patience, time.Millisecond)
	end()
	waittest.Until(t, func() bool { return len(seed.Members()) == 1 }, routetest.Patience, 10*time.Millisecond)
	waittest.Until(t, func() bool {
		for _, kinds := range heard.byName() {
			return slices.Equal(kinds, []route.EventKind{route.Joined, route.Left})
		}
		return false
	}, time.Second, 10*time.Millisecond, "%v", heard.byName())
}

// TestDeathsInARow: a member that dies is noticed as soon as the first, however many died before it. memberlist waits
// six times as long where members could confirm a suspicion, and counts the dead that it remembers among them.
func TestDeathsInARow(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	n.timing = n.timing.With(gossip.Waits{Leave: 100 * time.Millisecond}) // it is cut off: nothing hears it leave
	died := make(chan time.Time, 8)
	witness := n.node(t, "a:1", new(route.Table), func(e route.Event) {
		if e.Kind == route.Died {
			died <- time.Now()
		}
	})
	n.run(t, witness)
	const unconfirmed = 4800 * time.Millisecond // 6 times memberlist's 4 probe intervals
	for i := range 3 {
		peer := n.node(t, "b:1", new(route.Table), nil)
		end := n.run(t, peer)
		waittest.Until(t, func() bool { return len(witness.Members()) == 2 }, routetest.Patience, time.Millisecond)
		time.Sleep(time.Second) // probes that are answered: the witness finds that the failed ones were not its fault
		cut := time.Now()
		n.cut(silent, peer)
		at := <-died
		require.Less(t, at.Sub(cut), unconfirmed-time.Second, "death %d", i+1)
		end()
	}
}

// TestStrangers: those with another key or label, such as another world of one name, or without a contact, are no
// members.
func TestStrangers(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	heard := new(events)
	start := func(contact string, cfg gossip.Config) *gossip.Node {
		cfg.Bind, cfg.Timing, cfg.Notify = "127.0.0.1:0", gossip.Fast(), heard.add
		node, err := gossip.New(contact, new(route.Table), &cfg)
		require.NoError(t, err)
		n.run(t, node)
		return node
	}
	keys := [][]byte{[]byte("0123456789abcdef")}
	label := func() string { return fence.World{Name: "red", ID: fence.NewWorldID()}.String() }
	red := label()
	a := start("a:1", gossip.Config{SecretKeys: keys, Label: red})
	seeds := []string{a.Addr()}
	for _, stranger := range []gossip.Config{{Label: red},
		{SecretKeys: [][]byte{[]byte("fedcba9876543210")}, Label: red},
		{SecretKeys: keys, Label: label()}, {SecretKeys: keys}} {
		stranger.Seeds = seeds
		start("b:1", stranger)
	}
	peer(t, a.Addr(), red, keys[0], &foreign{}) // no meta data
	time.Sleep(500 * time.Millisecond)
	require.Len(t, a.Members(), 1)
	require.Empty(t, heard.byName())
	friend := start("c:1", gossip.Config{SecretKeys: keys, Label: red, Seeds: seeds})
	waittest.Until(t, func() bool {
		return len(a.Members()) == 2 && len(friend.Members()) == 2
	}, routetest.Patience, 10*time.Millisecond)
}

// TestTilesGoWithTheirMember: what a member announced is forgotten when it has gone, although a member that stays
// and forgets nothing goes on announcing it.
func TestTilesGoWithTheirMember(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	all := func(string) bool { return true }
	var tables []*route.Table
	for i, contact := range []string{"a:1", "b:1", "reminds:1", "liar:1"} {
		tables = append(tables, &route.Table{Known: all})
		if i == 2 {
			tables[i].Known = nil
		}
		n.node(t, contact, tables[i], nil)
		if i < 3 {
			n.run(t, n.nodes[i])
		}
	}
	liar := n.nodes[3]
	ctx, leave := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- liar.Run(ctx) }()
	kept := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}
	require.NoError(t, n.nodes[0].Announce(kept))
	for i := range 5000 {
		require.NoError(t, liar.Announce(route.Entry{Tile: fence.TileID(2 + i), Epoch: 9, Contact: "liar:1"}))
	}
	for i := range tables[:3] {
		waittest.Until(t, func() bool { return tables[i].Stats().Known == 5001 }, routetest.Patience,
			10*time.Millisecond)
	}
	waittest.Until(t, func() bool { // no member has it in a packet yet to be sent
		return !slices.ContainsFunc(n.nodes, func(n *gossip.Node) bool { return n.Stats().Queued > 0 })
	}, routetest.Patience, 10*time.Millisecond)
	leave()
	require.NoError(t, <-ended)
	only := func() bool {
		return slices.Equal([]route.Entry{kept}, tables[0].Snapshot()) &&
			slices.Equal([]route.Entry{kept}, tables[1].Snapshot())
	}
	waittest.Until(t, only, routetest.Patience, 10*time.Millisecond)
	for range 300 { // several exchanges of maps
		require.True(t, only())
		time.Sleep(10 * time.Millisecond)
	}
	assert.GreaterOrEqual(t, tables[0].Stats().Forgotten, uint64(5000))
	assert.Equal(t, 5001, tables[2].Stats().Known)
}

// TestAPeerThatSendsNonsense: a member whose maps and packets are malformed changes nothing, is counted, and
// disturbs no member.
func TestAPeerThatSendsNonsense(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	var tables [2]*route.Table
	var nodes [2]*gossip.Node
	for i, contact := range []string{"a:1", "b:1"} {
		tables[i] = new(route.Table)
		nodes[i] = n.node(t, contact, tables[i], nil)
		n.run(t, nodes[i])
	}
	liar := gossip.Seal([]byte{1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0}) // epoch zero
	peer(t, nodes[0].Addr(), n.label, nil, &foreign{meta: []byte("evil:1"), state: liar, packet: []byte("nonsense")})
	e := route.Entry{Tile: 1, Epoch: 1, Contact: "a:1"}
	require.NoError(t, nodes[0].Announce(e))
	for i := range nodes {
		waittest.Until(t, func() bool {
			return nodes[i].Stats().Refused > 2 && len(nodes[i].Members()) == 3
		}, routetest.Patience, 10*time.Millisecond)
		waittest.Until(t, func() bool {
			return slices.Equal([]route.Entry{e}, tables[i].Snapshot())
		}, routetest.Patience, 10*time.Millisecond)
	}
}

// foreign is a program that speaks memberlist, and says what it likes.
type foreign struct{ meta, state, packet []byte }

func (f *foreign) NodeMeta(int) []byte             { return f.meta }
func (f *foreign) NotifyMsg([]byte)                {}
func (f *foreign) LocalState(bool) []byte          { return f.state }
func (f *foreign) MergeRemoteState([]byte, bool)   {}
func (f *foreign) GetBroadcasts(int, int) [][]byte { return [][]byte{f.packet} }

// peer runs a foreign member.
func peer(t *testing.T, seed, label string, key []byte, f *foreign) {
	t.Helper()
	cfg := memberlist.DefaultLocalConfig()
	cfg.Name, cfg.BindAddr, cfg.BindPort, cfg.Label, cfg.SecretKey = "foreign", "127.0.0.1", 0, label, key
	cfg.Delegate, cfg.LogOutput = f, discard{}
	cfg.ProbeInterval, cfg.PushPullInterval = 200*time.Millisecond, 200*time.Millisecond
	list, err := memberlist.Create(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, list.Shutdown()) })
	_, err = list.Join([]string{seed})
	require.NoError(t, err)
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// TestAFarewellIsBelievedOnce: of another member, and not of the node itself.
func TestAFarewellIsBelievedOnce(t *testing.T) {
	t.Parallel()
	n := newNetwork()
	heard := new(events)
	a := n.node(t, "a:1", new(route.Table), heard.add)
	n.run(t, a)
	b := n.node(t, "b:1", new(route.Table), nil)
	endB := n.run(t, b)
	waittest.Until(t, func() bool { return len(a.Members()) == 2 }, routetest.Patience, 10*time.Millisecond)
	for _, m := range a.Members() {
		if m.Contact == "a:1" {
			a.Receive(gossip.EncodeFarewell(m.Name))
		}
	}
	a.Receive(gossip.EncodeFarewell("nobody#1"))
	require.Empty(t, farewells(a), "not passed on")
	n.cut(silent, b)
	endB()
	waittest.Until(t, func() bool { return len(a.Members()) == 1 }, routetest.Patience, 10*time.Millisecond)
	waittest.Until(t, func() bool {
		for _, kinds := range heard.byName() {
			return slices.Equal(kinds, []route.EventKind{route.Joined, route.Died})
		}
		return false
	}, routetest.Patience, 10*time.Millisecond)
}

// farewells returns the names that a node would send on.
func farewells(n *gossip.Node) []string {
	var names []string
	for _, msg := range n.Packet(packet) {
		if _, name, err := gossip.Decode(msg); err == nil && name != "" {
			names = append(names, name)
		}
	}
	return names
}
