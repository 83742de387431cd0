package tilefence_test

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/tile"
)

// constructors makes one server of each kind.
var constructors = map[string]func(b tilefence.Backends) (tilefence.Server, error){
	"TileServer": func(b tilefence.Backends) (tilefence.Server, error) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		return tilefence.NewTileServer(l.Addr().String(), b, newBell,
			&tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}})
	},
	"GatewayServer": func(b tilefence.Backends) (tilefence.Server, error) {
		return tilefence.NewGatewayServer("127.0.0.1:0", b, anybody, free, nil)
	},
	"RelayServer": func(b tilefence.Backends) (tilefence.Server, error) {
		return tilefence.NewRelayServer("127.0.0.1:0", b, everyTile, nil)
	},
	"BridgeServer": func(b tilefence.Backends) (tilefence.Server, error) {
		return tilefence.NewBridgeServer(b, nil)
	},
	"CheckpointServer": func(b tilefence.Backends) (tilefence.Server, error) {
		return tilefence.NewCheckpointServer(b, nil)
	},
}

// Each server names every back end that it needs and was not given, and only those.
func TestMissingBackends(t *testing.T) {
	for kind, missing := range map[string]string{
		"TileServer":       "nil Authority, Store, Log, Fanout, Durable, Members",
		"GatewayServer":    "nil Store, Ledger, Members",
		"RelayServer":      "nil Log, Fanout",
		"BridgeServer":     "nil Authority, Log, Fanout, Workers",
		"CheckpointServer": "nil Authority, Log, Fanout, Durable, Workers",
	} {
		_, err := constructors[kind](tilefence.Backends{})
		var argument *fence.ArgumentError
		require.ErrorAs(t, err, &argument, kind)
		assert.Equal(t, missing, argument.Value)
		assert.Contains(t, err.Error(), "which a "+kind+" needs")
	}
	b := embedded(t)
	b.Durable = nil
	_, err := constructors["TileServer"](b)
	assert.ErrorContains(t, err, `"nil Durable"`)
}

// What a server sets itself cannot be set beside it, and what would be unsafe cannot be left out.
func TestSettingsThatAreRefused(t *testing.T) {
	b := embedded(t)
	tiles := func(cfg tilefence.TileServerConfig) error {
		_, err := tilefence.NewTileServer("127.0.0.1:7001", b, newBell, &cfg)
		return err
	}
	gateway := func(cfg tilefence.GatewayServerConfig) error {
		_, err := tilefence.NewGatewayServer("127.0.0.1:0", b, anybody, free, &cfg)
		return err
	}
	var withFollow tilefence.TileServerConfig
	withFollow.Host.Tile.Follow = true
	_, noPrice := tilefence.NewGatewayServer("127.0.0.1:0", b, anybody, nil, nil)
	_, noAuthenticate := tilefence.NewGatewayServer("127.0.0.1:0", b, nil, free, nil)
	_, noAuthorize := tilefence.NewRelayServer("127.0.0.1:0", b, nil, nil)
	_, noRules := tilefence.NewTileServer("127.0.0.1:7001", b, nil, nil)
	refunds := tilefence.GatewayServerConfig{Reconciler: admission.ReconcilerConfig{RememberFor: 10 * time.Minute}}
	short := tilefence.GatewayServerConfig{Reconciler: admission.ReconcilerConfig{RememberFor: time.Minute}}
	blind := b
	blind.Authority = nil
	_, noEvidence := tilefence.NewGatewayServer("127.0.0.1:0", blind, anybody, free, &refunds)
	require.NoError(t, gateway(refunds))
	var forgets tilefence.TileServerConfig // an action that gateways still send
	forgets.Host.Tile.RememberFor = tile.DefaultRetryWindow
	require.ErrorIs(t, tiles(forgets), fence.ErrInvalidArgument)
	for field, err := range map[string]error{
		"Backends":        noEvidence,
		"RememberFor":     gateway(short),
		"Tile":            tiles(withFollow),
		"HandOverTimeout": tiles(tilefence.TileServerConfig{HandOverTimeout: -1}),
		"rules":           noRules,
		"price":           noPrice,
		"DrainTimeout":    gateway(tilefence.GatewayServerConfig{DrainTimeout: -1}),
		"authenticate":    noAuthenticate,
		"authorize":       noAuthorize,
	} {
		var argument *fence.ArgumentError
		if assert.ErrorAs(t, err, &argument, field) {
			assert.Equal(t, field, argument.Field)
		}
	}
}

func TestServersRunOnce(t *testing.T) {
	for kind, construct := range constructors {
		s, err := construct(embedded(t))
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.NoError(t, s.Run(ctx), kind)
		err = s.Run(ctx)
		require.ErrorIs(t, err, fence.ErrAlreadyRun)
		require.ErrorContains(t, err, kind)
	}
}

// A server that cannot listen says so and starts nothing.
func TestAddressInUse(t *testing.T) {
	taken := listen(t).Addr().String()
	b := embedded(t)
	server, err := tilefence.NewTileServer(taken, b, newBell, nil)
	require.NoError(t, err)
	require.NoError(t, server.Own(1))
	awaited := make(chan error, 1)
	go func() { awaited <- server.Host().Await(context.Background(), 1) }()
	require.ErrorContains(t, server.Run(t.Context()), "address already in use")
	require.ErrorContains(t, <-awaited, "address already in use", "a caller that waits for a tile learns it, too")
	require.ErrorContains(t, server.Host().Await(t.Context(), 1), "address already in use", "one that comes later, too")
	require.ErrorIs(t, server.Own(2), tile.ErrHostEnded)
}

// named is a server of the caller's.
type named struct {
	name   string
	order  *record
	ends   error
	atOnce bool
}

func (n *named) Run(ctx context.Context) error {
	n.order.add("+" + n.name)
	if !n.atOnce {
		<-ctx.Done()
	}
	n.order.add("-" + n.name)
	return n.ends
}

func TestRunStopsTheFirstFirst(t *testing.T) {
	var order record
	broken := errors.New("broken")
	err := tilefence.Run(t.Context(), &named{name: "a", order: &order}, &named{name: "b", order: &order},
		&named{name: "c", order: &order, atOnce: true, ends: broken})
	require.ErrorIs(t, err, broken)
	require.ErrorContains(t, err, "named: broken")
	var stops []string
	for _, e := range order.all() {
		if e == "-a" || e == "-b" {
			stops = append(stops, e)
		}
	}
	assert.Equal(t, []string{"-a", "-b"}, stops, "a server that ends stops the others, in order")
}

// Servers in any order stop in the one of the data: each kind after those that feed it, and a server of the caller's
// after the one before it.
func TestRunOrdersServers(t *testing.T) {
	b := embedded(t)
	servers := map[string]tilefence.Server{}
	for kind, construct := range constructors {
		s, err := construct(b)
		require.NoError(t, err)
		servers[kind] = s
	}
	require.ErrorIs(t, tilefence.Run(t.Context(), nil), fence.ErrInvalidArgument)
	require.ErrorIs(t, tilefence.Run(t.Context(), (*tilefence.TileServer)(nil)), fence.ErrInvalidArgument)

	var order record
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, tilefence.Run(ctx,
		servers["CheckpointServer"], &named{name: "after checkpoints", order: &order},
		servers["RelayServer"], &named{name: "after relays", order: &order},
		servers["TileServer"], servers["BridgeServer"], servers["GatewayServer"],
		&named{name: "after gateways", order: &order}))
	var stops []string
	for _, e := range order.all() {
		if e[0] == '-' {
			stops = append(stops, e[1:])
		}
	}
	require.Equal(t, []string{"after gateways", "after relays", "after checkpoints"}, stops)
}

// slow is a server that ends so long after its context, and notes when it was stopped.
type slow struct {
	takes   time.Duration
	stopped time.Duration
	began   time.Time
}

func (s *slow) Run(ctx context.Context) error {
	<-ctx.Done()
	s.stopped = time.Since(s.began)
	time.Sleep(s.takes)
	return nil
}

// TestTheEndIsBounded: a process whose servers hang ends within StopTimeout, each server has its turn before, and the
// error says which did not end. Servers that are slow and not too slow have the time that others leave.
func TestTheEndIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes   [5]time.Duration
		lasts   time.Duration
		stopped [5]time.Duration
		fails   bool
	}{
		"all is well": {},
		"one is slow": {takes: [5]time.Duration{1: 15 * time.Second}, lasts: 15 * time.Second,
			stopped: [5]time.Duration{2: 15 * time.Second, 3: 15 * time.Second, 4: 15 * time.Second}},
		"one hangs": {takes: [5]time.Duration{1: time.Minute}, lasts: 25 * time.Second, fails: true,
			stopped: [5]time.Duration{2: 19 * time.Second, 3: 19 * time.Second, 4: 19 * time.Second}},
		"all hang": {takes: [5]time.Duration{time.Minute, time.Minute, time.Minute, time.Minute, time.Minute},
			lasts: 25 * time.Second, fails: true,
			stopped: [5]time.Duration{1: 17 * time.Second, 2: 19 * time.Second, 3: 21 * time.Second,
				4: 23 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				servers, all := [5]*slow{}, make([]tilefence.Server, 5)
				for i := range servers {
					servers[i] = &slow{takes: test.takes[i], began: began}
					all[i] = servers[i]
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				err := tilefence.Run(ctx, all...)
				assert.Equal(t, test.lasts, time.Since(began))
				assert.LessOrEqual(t, time.Since(began), tilefence.StopTimeout)
				if test.fails {
					require.ErrorIs(t, err, tilefence.ErrUnfinished)
				} else {
					require.NoError(t, err)
				}
				time.Sleep(time.Minute) // what hung ends
				synctest.Wait()
				for i, s := range servers {
					assert.Equal(t, test.stopped[i], s.stopped, "server %d", i)
				}
			})
		})
	}
}

// TestAnEndThatReleasedNothingSaysSo: the back ends, or the coordination store alone, answer nothing when a tile server
// stops, although another server would take its tiles. It stops in time, and the error names the tiles that it holds.
func TestAnEndThatReleasedNothingSaysSo(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*faultinject.Line, tilefence.Backends) tilefence.Backends{
		"no back end":           (*faultinject.Line).Process,
		"no coordination store": (*faultinject.Line).Coordination,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, b := faultinject.New(), embedded(t)
			cfg := tilefence.TileServerConfig{HandOverTimeout: 100 * time.Millisecond}
			cfg.Host.Tile.DrainTimeout = 100 * time.Millisecond
			s, peer := tileServer(t, cut(line, b), cfg), tileServer(t, b, tilefence.TileServerConfig{})
			require.NoError(t, s.Own(plaza, harbour))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			start(t, peer)
			await(t, s, plaza)
			await(t, s, harbour)
			line.Set(faultinject.Cut)
			began := time.Now()
			stop()
			err := <-ended
			require.Less(t, time.Since(began), 20*time.Second)
			var unreleased *tilefence.UnreleasedError
			require.ErrorAs(t, err, &unreleased)
			require.ErrorIs(t, err, tile.ErrUnreleased)
			require.Equal(t, []fence.TileID{plaza, harbour}, unreleased.Tiles)
			require.Equal(t, s.Contact(), unreleased.Contact)
		})
	}
}
