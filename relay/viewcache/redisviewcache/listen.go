package redisviewcache

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/listen"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/internal/wait"
)

// A subscription that has been silent for silence is pinged, and made anew if that is not answered either, or after
// any error, a little later. What is announced meanwhile is lost; waiting rebuilders look again by themselves.
const (
	silence    = time.Second
	retryAfter = 100 * time.Millisecond
)

// listeners are the functions to call for announcements. The first one makes the subscriptions: one for each group, as
// their slots may be anywhere in a cluster, and one for all groups of a single server.
type listeners struct {
	client redis.UniversalClient
	world  fence.World

	mu      sync.Mutex
	base    context.Context // of the subscriptions
	cancel  context.CancelFunc
	waiting listen.Set[string, func(viewstore.Version)] // by tile, as the announcements have it
	ended   sync.WaitGroup
}

func (l *listeners) listen(tile fence.TileID, heard func(viewstore.Version)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.base == nil {
		l.base, l.cancel = context.WithCancel(context.Background())
		var all []string
		for group := range viewstore.Groups {
			all = append(all, l.world.Key(channel(group)))
		}
		size := len(all)
		if _, cluster := l.client.(*redis.ClusterClient); cluster {
			size = 1
		}
		for channels := range slices.Chunk(all, size) {
			l.ended.Go(func() { l.follow(l.base, channels) })
		}
	}
	return l.waiting.Add(tile.String(), heard)
}

// follow keeps channels subscribed until ctx ends.
func (l *listeners) follow(ctx context.Context, channels []string) {
	for ctx.Err() == nil {
		// A new PubSub each time: the library subscribes a sharded channel again at any node, not at that of its slot.
		ps := l.client.SSubscribe(ctx)
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() })
		if ps.SSubscribe(ctx, channels...) == nil {
			l.receive(ctx, ps)
		}
		stop()
		_ = ps.Close()
		wait.For(ctx, retryAfter)
	}
}

// receive hands on what is announced until the subscription fails.
func (l *listeners) receive(ctx context.Context, ps *redis.PubSub) {
	pinged := false
	for {
		m, err := ps.ReceiveTimeout(ctx, silence)
		var wire net.Error
		switch {
		case err == nil:
			pinged = false
		case !pinged && errors.As(err, &wire) && wire.Timeout() && ps.Ping(ctx) == nil:
			pinged = true
		default:
			return
		}
		switch m := m.(type) {
		case *redis.Message:
			l.announce(m.Payload)
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" {
				return // the slot has moved
			}
		}
	}
}

// announce calls the listeners of the tile of a message. A message without a tile and a version is ignored.
func (l *listeners) announce(message string) {
	fields := strings.Fields(message)
	if len(fields) == 0 {
		return
	}
	v, err := readVersion(fields[1:])
	if err != nil {
		return
	}
	for _, heard := range l.waiting.Of(fields[0]) {
		heard(v)
	}
}

func (l *listeners) close() {
	l.mu.Lock()
	if l.base == nil {
		l.base, l.cancel = context.WithCancel(context.Background())
	}
	l.cancel()
	l.mu.Unlock()
	l.ended.Wait()
}
