package natsfanout_test

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/natstest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/fanouttest"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

const patience = time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var quiet = slog.New(slog.DiscardHandler)

func open(t testing.TB, cfg *natsfanout.Config, servers ...string) *natsfanout.Fanout {
	c := natsfanout.Config{}
	if cfg != nil {
		c = *cfg
	}
	if c.Logger == nil {
		c.Logger = quiet
	}
	f, err := natsfanout.Open(servers, &c)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

func TestConformance(t *testing.T) {
	node := natstest.Start(t, nil)
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		return backend(open(t, nil, node.URL()), open(t, nil, node.URL()))
	})
}

func backend(pub, sub *natsfanout.Fanout) fanouttest.Backend {
	return fanouttest.Backend{Publisher: pub, Subscriber: sub, HintPublisher: pub, HintSubscriber: sub,
		Dropped: func() uint64 { return sub.Stats().Dropped }}
}

// TestConformanceInACluster: the publisher and the subscribers use different nodes.
func TestConformanceInACluster(t *testing.T) {
	cluster := natstest.StartCluster(t, 3, nil)
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		pub, sub := open(t, nil, cluster[0].URL()), open(t, nil, cluster[1].URL())
		b := backend(pub, sub)
		b.Subscriber = &patient{Fanout: sub, t: t, publisher: cluster[0]}
		b.HintSubscriber = &patient{Fanout: sub, t: t, publisher: cluster[0]}
		return b
	})
}

// patient waits after each Subscribe until the publisher's node has heard of the subscription too: the one delay that a
// cluster adds to the contract, see the package's documentation.
type patient struct {
	*natsfanout.Fanout
	t         *testing.T
	publisher *natstest.Node
}

func (p *patient) Subscribe(ctx context.Context, tile fence.TileID, deliver func([]byte)) (func(), error) {
	stop, err := p.Fanout.Subscribe(ctx, tile, deliver)
	if err == nil {
		p.await()
	}
	return stop, err
}

func (p *patient) SubscribeHints(group int, deliver func([]fence.TileID), up func(bool)) (func(), error) {
	if up == nil {
		return p.Fanout.SubscribeHints(group, deliver, nil)
	}
	return p.Fanout.SubscribeHints(group, deliver, func(inForce bool) {
		if inForce {
			p.await()
		}
		up(inForce)
	})
}

// await subscribes to a tile no test uses. Nodes announce to each other a connection's subscriptions in the order they
// were made, so a node that hears of this one knows those before it. That it hears of a subject does not say so: the
// word that an earlier subscription to it ended may be still under way.
func (p *patient) await() {
	marker := fence.TileID(rand.Uint64() | 1)
	stop, err := p.Fanout.Subscribe(context.Background(), marker, func([]byte) {})
	if !assert.NoError(p.t, err) {
		return
	}
	defer stop()
	subject := natsfanout.Subject(marker)
	assert.True(p.t, waittest.Holds(func() bool { return p.publisher.Hears(subject) }, patience, 100*time.Microsecond))
}

func TestArgumentsOfOpen(t *testing.T) {
	for name, err := range map[string]error{
		"no servers": errOf(natsfanout.Open(nil, nil)),
		"not a URL":  errOf(natsfanout.Open([]string{"nats://%zz"}, nil)),
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
}

func errOf(_ *natsfanout.Fanout, err error) error { return err }

// TestNobodyThere: without servers both sides say so, in time; when one appears, both go on by themselves.
func TestNobodyThere(t *testing.T) {
	node := natstest.Start(t, nil)
	node.Kill()
	f := open(t, nil, node.URL())
	sent, err := f.Publish(t.Context(), []fanout.Message{{Tile: 7, Data: []byte("x")}})
	require.Zero(t, sent)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	var failed *fanout.PublishError
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.Handed[0])
	require.ErrorIs(t, f.PublishHints(t.Context(), []fence.TileID{7}), fence.ErrNotApplied)

	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err = f.Subscribe(ctx, 7, func([]byte) {})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "not connected")
	require.Zero(t, f.Stats().Subscriptions)
	require.Zero(t, f.Stats().Subjects)

	node.Restart()
	newProbe(t, f, f).awaitLive()
}

// TestServerLimits: a server that could not carry the largest frame is refused at the first call.
func TestServerLimits(t *testing.T) {
	node := natstest.Start(t, func(o *server.Options) { o.MaxPayload = 1 << 20 })
	f := open(t, nil, node.URL())
	_, err := f.Publish(t.Context(), []fanout.Message{{Tile: 7, Data: []byte("small")}})
	var limit *natsfanout.LimitError
	require.ErrorAs(t, err, &limit)
	require.Equal(t, int64(1<<20), limit.MaxPayload)
	require.ErrorIs(t, err, fence.ErrNotApplied)
	found := f.Check(t.Context())
	require.Len(t, found, 1)
	require.ErrorAs(t, found[0], &limit)
}

// TestPermissions: what the server forbids is an error of the call, and not a silence.
func TestPermissions(t *testing.T) {
	const allowed, forbidden fence.TileID = 7, 8
	only := &server.SubjectPermission{Allow: []string{natsfanout.Subject(allowed)}}
	node := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "bridge", Password: "b", Permissions: &server.Permissions{
			Publish: only, Subscribe: only}}}
	})
	f := open(t, nil, "nats://bridge:b@"+node.URL()[len("nats://"):])
	refused := func(n uint64) {
		waittest.Until(t, func() bool { return f.Stats().Refused == n }, patience, time.Millisecond)
	}
	got := make(chan []byte, 1)
	_, err := f.Subscribe(t.Context(), allowed, func(data []byte) { got <- data })
	require.NoError(t, err)
	_, err = f.Publish(t.Context(), []fanout.Message{{Tile: allowed, Data: []byte("x")}})
	require.NoError(t, err)
	require.Equal(t, []byte("x"), <-got)

	_, err = f.Subscribe(t.Context(), forbidden, func([]byte) {})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.ErrorContains(t, err, "ermissions")
	refused(1)
	_, err = f.Publish(t.Context(), []fanout.Message{{Tile: forbidden, Data: []byte("x")}})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	refused(2)
	require.Equal(t, 1, f.Stats().Subjects)
}

// TestClosed: calls after Close fail, and what was subscribed can still be stopped.
func TestClosed(t *testing.T) {
	node := natstest.Start(t, nil)
	f := open(t, nil, node.URL())
	stop, err := f.Subscribe(t.Context(), 7, func([]byte) {})
	require.NoError(t, err)
	stopHints, err := f.SubscribeHints(1, func([]fence.TileID) {}, func(bool) {})
	require.NoError(t, err)
	f.Close()
	f.Close()
	_, err = f.Publish(t.Context(), []fanout.Message{{Tile: 7}})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	_, err = f.Subscribe(t.Context(), 7, func([]byte) {})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	_, err = f.SubscribeHints(1, func([]fence.TileID) {}, func(bool) {})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	stop()
	stopHints()
	require.False(t, f.Stats().Connected)
}

// probe is a subscription that can be asked whether it is alive.
type probe struct {
	t    *testing.T
	tile fence.TileID
	pub  *natsfanout.Fanout
	got  chan string
}

func newProbe(t *testing.T, sub, pub *natsfanout.Fanout) *probe {
	p := &probe{t: t, tile: anyTile(), pub: pub, got: make(chan string, 10_000)}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stop, err := sub.Subscribe(ctx, p.tile, func(data []byte) { p.got <- string(data) })
	require.NoError(t, err)
	t.Cleanup(stop)
	return p
}

// awaitLive publishes until a message arrives, and fails if none does.
func (p *probe) awaitLive() {
	p.t.Helper()
	mark := anyTile().String()
	deadline := time.Now().Add(patience)
	for time.Now().Before(deadline) {
		_, _ = p.pub.Publish(p.t.Context(), []fanout.Message{{Tile: p.tile, Data: []byte(mark)}})
		timeout := time.After(100 * time.Millisecond)
		for waiting := true; waiting; {
			select {
			case got := <-p.got:
				if got == mark {
					return
				}
			case <-timeout:
				waiting = false
			}
		}
	}
	p.t.Fatal("nothing arrived")
}

func anyTile() fence.TileID { return fence.TileID(rand.Uint64() | 1) }
