package redisfanout

import (
	"sync"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

// Fanout publishes to and subscribes from Redis. It implements the four interfaces of package fanout.
type Fanout struct {
	cfg   Config
	nodes *topology
	local *memfanout.Broker // from the shared connections to the subscriptions

	mu      sync.Mutex
	session *session // nil while there are no subscriptions

	published, unpublished, received, disconnects   atomic.Uint64
	hintsSent, hintsUnsent, hintsReceived, badHints atomic.Uint64
}

var (
	_ fanout.Publisher  = (*Fanout)(nil)
	_ fanout.Subscriber = (*Fanout)(nil)

	_ fanout.HintPublisher  = (*Fanout)(nil)
	_ fanout.HintSubscriber = (*Fanout)(nil)
)

// New returns a Fanout on client, a *redis.ClusterClient or a *redis.Client; it does no I/O. A nil cfg
// means all defaults. A *fence.ArgumentError names a client of another kind or one that does not obey
// deadlines (see Options), or a setting that is negative.
func New(client redis.UniversalClient, cfg *Config) (*Fanout, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	nodes, err := newTopology(client, c.TopologyInterval)
	if err != nil {
		return nil, err
	}
	local, err := memfanout.NewWithConfig(&memfanout.Config{Buffer: c.Buffer, BufferBytes: c.BufferBytes,
		Hooks: memfanout.Hooks{Dropped: c.Hooks.Dropped}})
	if err != nil {
		return nil, err
	}
	return &Fanout{cfg: c, nodes: nodes, local: local}, nil
}

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (f *Fanout) Stats() Stats {
	local, hints := f.local.Stats(), f.local.HintStats()
	s := Stats{
		Published:     f.published.Load(),
		Unpublished:   f.unpublished.Load(),
		Received:      f.received.Load(),
		Dropped:       local.Dropped,
		Disconnects:   f.disconnects.Load(),
		HintsSent:     f.hintsSent.Load(),
		HintsUnsent:   f.hintsUnsent.Load(),
		HintsReceived: f.hintsReceived.Load(),
		HintsDropped:  hints.Dropped,
		BadHints:      f.badHints.Load(),
		Subscriptions: local.Subscriptions + hints.Subscriptions,
	}
	f.mu.Lock()
	session := f.session
	f.mu.Unlock()
	if session != nil {
		s.Channels, s.InForce, s.Connections = session.count()
	}
	return s
}

func noTile() error {
	return &fence.ArgumentError{Field: "tile", Value: fence.TileID(0), Want: "an H3 index, not zero"}
}
