package campaign

import (
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// Hosts of the servers that are not workers. They run in the campaign's process, each with connections of its own.
const (
	campaignHost   = "127.0.3.3"
	bridgeHost     = "127.0.3.1"
	checkpointHost = "127.0.3.2"
)

var (
	gatewayHosts = []string{"127.0.4.1", "127.0.4.2"}
	relayHosts   = []string{"127.0.5.1", "127.0.5.2"}
)

// world is a run's servers but for the workers: gateways, a bridge, relays, and a checkpointer.
type world struct {
	servers  *servers
	recorder *history.Recorder
	tiles    []fence.TileID

	gateways, relays []string // addresses
	running          []tilefence.Server
	closers          []func()
	ended            chan struct{}
}

// start starts the servers, which run until ctx ends; then stop waits for them.
func (w *world) start(ctx context.Context) error {
	for _, host := range gatewayHosts {
		if err := w.gateway(ctx, host); err != nil {
			return err
		}
	}
	if err := w.bridge(ctx); err != nil {
		return err
	}
	for _, host := range relayHosts {
		if err := w.relay(ctx, host); err != nil {
			return err
		}
	}
	if err := w.checkpointer(ctx); err != nil {
		return err
	}
	w.ended = make(chan struct{})
	go func() {
		defer close(w.ended)
		_ = tilefence.Run(ctx, w.running...) // what is left undone is no finding: the workers are paused by then
	}()
	return nil
}

// connect opens the back ends for a server.
func (w *world) connect(ctx context.Context, host, gossips string) (*process, error) {
	p, err := w.servers.connect(ctx, host, gossips)
	if err == nil {
		w.closers = append(w.closers, p.close)
	}
	return p, err
}

// listening connects a server that has clients of its own, and opens an address for them.
func (w *world) listening(ctx context.Context, host, gossips string) (*process, net.Listener, error) {
	p, err := w.connect(ctx, host, gossips)
	if err != nil {
		return nil, nil, err
	}
	l, err := net.Listen("tcp", host+":0")
	return p, l, err
}

func (w *world) gateway(ctx context.Context, host string) error {
	p, l, err := w.listening(ctx, host, host+":0")
	if err != nil {
		return err
	}
	s, err := tilefence.NewGatewayServer(l.Addr().String(), p.Backends, authenticate, price,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: l}, DrainTimeout: 500 * time.Millisecond,
			Gateway: admission.GatewayConfig{Unlimited: true, RetryWindow: retryWindow, ForwardTimeout: attemptTime,
				SweepInterval: 800 * time.Millisecond, SweepAge: 300 * time.Millisecond},
			Reconciler: admission.ReconcilerConfig{RememberFor: tile.DefaultRememberFor, RetryWindow: retryWindow,
				MaxClockSkew: 200 * time.Millisecond}})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	w.gateways, w.running = append(w.gateways, l.Addr().String()), append(w.running, s)
	return nil
}

// recordedFanout records what the bridge publishes.
type recordedFanout struct {
	fanout.Publisher
	fanout.Subscriber
	fanout.HintPublisher
	fanout.HintSubscriber
}

func (w *world) bridge(ctx context.Context) error {
	p, err := w.connect(ctx, bridgeHost, "")
	if err != nil {
		return err
	}
	b, f := p.Backends, p.Fanout
	b.Fanout = recordedFanout{w.recorder.Publisher("bridge", f), f, f, f}
	s, err := tilefence.NewBridgeServer(b, &tilefence.BridgeServerConfig{Tiles: share.Fixed(w.tiles),
		Bridge: bridge.Config{HintedPoll: time.Second, PublishTimeout: 500 * time.Millisecond,
			DrainTimeout: time.Second}})
	w.running = append(w.running, s)
	return err
}

// relay starts a relay whose timeouts are as short as the campaign's faults.
func (w *world) relay(ctx context.Context, host string) error {
	p, l, err := w.listening(ctx, host, "")
	if err != nil {
		return err
	}
	s, err := tilefence.NewRelayServer(l.Addr().String(), p.Backends, everyTile,
		&tilefence.RelayServerConfig{Web: tilefence.Web{Listener: l}, Relay: relay.Config{
			CheckInterval: 500 * time.Millisecond, BehindGrace: 3 * time.Second, StoreTimeout: time.Second,
			DrainWindow: time.Millisecond}})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	w.relays, w.running = append(w.relays, l.Addr().String()), append(w.running, s)
	return nil
}

func (w *world) checkpointer(ctx context.Context) error {
	p, err := w.connect(ctx, checkpointHost, "")
	if err != nil {
		return err
	}
	s, err := tilefence.NewCheckpointServer(p.Backends, &tilefence.CheckpointServerConfig{Tiles: share.Fixed(w.tiles),
		Checkpoint: checkpoint.Config{Cadence: 500 * time.Millisecond, RetryMax: time.Second, Drain: time.Millisecond}})
	w.running = append(w.running, s)
	return err
}

// stop waits for the servers and closes what they used. Their context has ended.
func (w *world) stop() {
	if w.ended != nil {
		<-w.ended
	}
	for _, c := range slices.Backward(w.closers) {
		c()
	}
}
