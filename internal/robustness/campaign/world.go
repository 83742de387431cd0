//go:build unix

package campaign

import (
	"context"
	"fmt"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// Hosts of the servers that are not workers. They run in the campaign's process, each with connections of its own.
const (
	campaignHost   = "127.0.3.3"
	checkpointHost = "127.0.3.2"
)

var (
	bridgeHosts  = []string{"127.0.3.1", "127.0.3.4"}
	gatewayHosts = []string{"127.0.4.1", "127.0.4.2"}
	relayHosts   = []string{"127.0.5.1", "127.0.5.2"}
)

// world is a run's servers but for the workers: gateways, bridges that share the tiles, relays, and a checkpointer.
type world struct {
	servers  *servers
	recorder *history.Recorder
	tiles    []fence.TileID
	bare     bool // there is a checkpointer only

	members []*member
}

// start starts the servers, which run until ctx ends.
func (w *world) start(ctx context.Context) error {
	for _, host := range gatewayHosts {
		w.members = append(w.members,
			&member{kind: "gateway", host: host, gossips: true, serves: true, open: w.gateway})
	}
	for _, host := range bridgeHosts {
		w.members = append(w.members, &member{kind: "bridge", host: host, open: w.bridge})
	}
	for _, host := range relayHosts {
		w.members = append(w.members, &member{kind: "relay", host: host, serves: true, open: w.relay})
	}
	if w.bare {
		w.members = nil
	}
	w.members = append(w.members, &member{kind: "checkpointer", host: checkpointHost, open: w.checkpointer})
	for _, m := range w.members {
		m.again = func() error { return m.start(ctx, w.servers) }
		if err := m.again(); err != nil {
			return fmt.Errorf("%s: %w", m.kind, err)
		}
	}
	return nil
}

// of lists the members of a kind.
func (w *world) of(kind string) (members []*member) {
	for _, m := range w.members {
		if m.kind == kind {
			members = append(members, m)
		}
	}
	return members
}

// addresses are where clients find the members of a kind.
func (w *world) addresses(kind string) (addresses []string) {
	for _, m := range w.of(kind) {
		addresses = append(addresses, m.addr)
	}
	return addresses
}

func (w *world) gateway(m *member) (tilefence.Server, error) {
	return tilefence.NewGatewayServer(m.addr, m.process.Backends, authenticate, game.Price,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: m.clients}, DrainTimeout: 500 * time.Millisecond,
			Gateway: admission.GatewayConfig{Unlimited: true, RetryWindow: retryWindow, ForwardTimeout: attemptTime,
				SweepInterval: 800 * time.Millisecond, SweepAge: 300 * time.Millisecond},
			Reconciler: admission.ReconcilerConfig{RememberFor: tile.DefaultRememberFor, RetryWindow: retryWindow,
				MaxClockSkew: 200 * time.Millisecond}})
}

// recordedFanout records what a bridge publishes.
type recordedFanout struct {
	fanout.Publisher
	fanout.Subscriber
	fanout.HintPublisher
	fanout.HintSubscriber
}

func (w *world) bridge(m *member) (tilefence.Server, error) {
	b, f := m.process.Backends, m.process.Fanout
	log, publisher := w.recorder.Bridge(m.name(), b.Log, f)
	b.Log, b.Fanout = log, recordedFanout{publisher, f, f, f}
	return tilefence.NewBridgeServer(b, &tilefence.BridgeServerConfig{Tiles: share.Fixed(w.tiles),
		Bridge: bridge.Config{HintedPoll: time.Second, PublishTimeout: 500 * time.Millisecond,
			DrainTimeout: time.Second}})
}

// relay starts a relay whose timeouts are as short as the campaign's faults.
func (w *world) relay(m *member) (tilefence.Server, error) {
	return tilefence.NewRelayServer(m.addr, m.process.Backends, everyTile,
		&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: m.clients}, Relay: relay.Config{
			CheckInterval: 500 * time.Millisecond, BehindGrace: 3 * time.Second, StoreTimeout: time.Second,
			DrainWindow: time.Millisecond}})
}

func (w *world) checkpointer(m *member) (tilefence.Server, error) {
	return tilefence.NewCheckpointServer(m.process.Backends, &tilefence.CheckpointServerConfig{
		Tiles:      share.Fixed(w.tiles),
		Checkpoint: checkpoint.Config{Cadence: 500 * time.Millisecond, RetryMax: time.Second, Drain: time.Millisecond}})
}

// stop waits for the servers and closes what they used. Their context has ended.
func (w *world) stop() {
	for _, m := range w.members {
		m.end()
	}
}
