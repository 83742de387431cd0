package redisfanout

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/internal/hub"
)

// Fanout publishes to and subscribes from Redis. It implements the four interfaces of package fanout.
type Fanout struct {
	cfg   Config
	nodes *topology
	local *hub.Local // what comes by the shared connections goes to its subscriptions

	client redis.UniversalClient
	hints  [fanout.HintGroups]string // the channels of the groups of hints

	mu      sync.Mutex
	session *session // nil while there are no subscriptions

	disconnects atomic.Uint64
	losses      rate.Sometimes // lines about connections: a node that is down is tried again and again
}

var (
	_ fanout.Publisher  = (*Fanout)(nil)
	_ fanout.Subscriber = (*Fanout)(nil)

	_ fanout.HintPublisher  = (*Fanout)(nil)
	_ fanout.HintSubscriber = (*Fanout)(nil)

	_ fanout.Audience = (*Fanout)(nil)

	_ fence.WorldKeeper = (*Fanout)(nil)
)

// EnterWorld implements fence.WorldKeeper. The ID is in the key fence.WorldRecord, behind the name.
func (f *Fanout) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return redislib.EnterWorld(ctx, f.client, f.cfg.World, w)
}

// channel is the channel of a tile.
func (f *Fanout) channel(t fence.TileID) string { return f.cfg.World.Channel(t) }

// New returns a Fanout on client, a *redis.ClusterClient or a *redis.Client; it does no I/O. A nil cfg
// means all defaults. A *fence.ArgumentError names a client of another kind or one that does not obey
// deadlines (see Options), or a setting that is negative.
func New(client redis.UniversalClient, cfg *Config) (*Fanout, error) {
	c, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	nodes, err := newTopology(client, topologyInterval)
	if err != nil {
		return nil, err
	}
	local, err := hub.NewLocal(c.tuning.BufferBytes, c.Logger)
	f := &Fanout{cfg: c, nodes: nodes, local: local, client: client,
		losses: rate.Sometimes{First: 10, Interval: 10 * time.Second}}
	for group := range f.hints {
		f.hints[group] = c.World.Key(fanout.HintChannel(group))
	}
	return f, err
}

// Stats returns the counters. They are read one after another: a message under way may be in some only.
func (f *Fanout) Stats() Stats {
	s := Stats{TrafficStats: f.local.Stats(), Disconnects: f.disconnects.Load()}
	f.mu.Lock()
	session := f.session
	f.mu.Unlock()
	if session != nil {
		s.Channels, s.InForce, s.Connections = session.count()
	}
	return s
}
