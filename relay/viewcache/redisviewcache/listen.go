package redisviewcache

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/listen"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/viewcache"
)

// A subscription that has been silent for silence is pinged, and made anew if that is not answered either, or after
// any error, a little later. What is announced meanwhile is lost; waiting rebuilders look again by themselves.
const (
	silence    = time.Second
	retryAfter = 100 * time.Millisecond
)

// linger is for how long a group stays subscribed that nobody waits for, so that waits which follow each other do not
// each make a subscription.
const linger = 10 * time.Second

// listeners are those who wait for announcements. Each group that is waited for has a subscription of its own, since
// groups may be on different nodes of a cluster: a relay gets the announcements of these groups only.
type listeners struct {
	client redis.UniversalClient
	linger time.Duration
	ctx    context.Context // of the subscriptions
	cancel context.CancelFunc

	mu      sync.Mutex
	groups  [viewcache.Groups]audience
	waiting listen.Set[string, func(viewcache.Version)] // by tile, as the announcements have it
	ended   sync.WaitGroup
}

// audience are those who wait for a group.
type audience struct {
	waiting  int
	left     time.Time // when the last one left
	followed bool      // by a goroutine
}

func newListeners(client redis.UniversalClient) *listeners {
	l := &listeners{client: client, linger: linger}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

func (l *listeners) listen(tile fence.TileID, heard func(viewcache.Version)) (stop func()) {
	group := viewcache.GroupOf(tile)
	remove := l.waiting.Add(tile.String(), heard)
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.groups[group]
	a.waiting++
	if !a.followed && l.ctx.Err() == nil {
		a.followed = true
		l.ended.Go(func() { l.follow(l.ctx, group) })
	}
	return sync.OnceFunc(func() {
		remove()
		l.mu.Lock()
		defer l.mu.Unlock()
		a.waiting--
		a.left = time.Now()
	})
}

// wanted reports whether a group is to be followed further. If not, the next one who waits begins anew.
func (l *listeners) wanted(group int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &l.groups[group]
	a.followed = l.ctx.Err() == nil && (a.waiting > 0 || time.Since(a.left) < l.linger)
	return a.followed
}

// follow keeps the channel of a group subscribed until it is not wanted.
func (l *listeners) follow(ctx context.Context, group int) {
	for l.wanted(group) {
		// A new PubSub each time: the library subscribes a sharded channel again at any node, not at that of its slot.
		ps := l.client.SSubscribe(ctx)
		stop := context.AfterFunc(ctx, func() { _ = ps.Close() })
		failed := ps.SSubscribe(ctx, channel(group)) != nil || l.receive(ctx, ps, group)
		stop()
		_ = ps.Close()
		if !failed {
			return
		}
		wait.For(ctx, retryAfter)
	}
}

// receive hands on what is announced until the subscription fails, or is not wanted.
func (l *listeners) receive(ctx context.Context, ps *redis.PubSub, group int) (failed bool) {
	for pinged := false; l.wanted(group); {
		m, err := ps.ReceiveTimeout(ctx, silence)
		var wire net.Error
		switch {
		case err == nil:
			pinged = false
		case !pinged && errors.As(err, &wire) && wire.Timeout() && ps.Ping(ctx) == nil:
			pinged = true
		default:
			return true
		}
		switch m := m.(type) {
		case *redis.Message:
			l.announce(m.Payload)
		case *redis.Subscription:
			if m.Kind == "sunsubscribe" {
				return true // the slot has moved
			}
		}
	}
	return false
}

// announce calls those who wait for the tile of a message. A message without a tile and a version is ignored.
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
	l.cancel()
	l.mu.Unlock()
	l.ended.Wait()
}
