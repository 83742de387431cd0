package relay

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// One actor watches as many tiles as the relay may. Another one is served all the same, and the first is told which
// tile it has lost, and may have it again when there is room.
func TestAFullRelayDropsATileOfTheHeaviest(t *testing.T) {
	w := newWorld(t)
	var names []string
	for i := range 5 {
		id := tileA + fence.TileID(i)
		w.claim(id, 1)
		names = append(names, id.String())
	}
	s := w.guarded(&bouncer{}, func(c *Config) { c.MaxTiles = 4 })
	mallory, ann := s.as(t, "mallory"), s.as(t, "ann")
	send(t, mallory, subscribeTo(names[:4]...))
	for range 4 {
		require.NotNil(t, receive(t, mallory).GetSync())
	}
	send(t, ann, subscribeTo(names[4]))
	m := receive(t, ann)
	require.NotNil(t, m.GetSync(), "%v", m)
	lost := receive(t, mallory)
	require.Equal(t, relaypb.Code_CODE_OVERLOADED, lost.GetError().GetCode())
	require.NotEqual(t, names[4], lost.GetTile())
	send(t, mallory, subscribeTo(lost.GetTile()))
	require.NotNil(t, receive(t, mallory).GetError(), "it has more than ann")
	require.Equal(t, 4, s.Stats().Subscriptions)
	require.NoError(t, ann.CloseNow())
	eventually(t, func() bool { return s.Stats().Subscriptions == 3 }, "she is gone")
	send(t, mallory, subscribeTo(lost.GetTile()))
	require.NotNil(t, receive(t, mallory).GetSync())
}

// What others watch, too, is not dropped because of one who has many.
func TestATileThatOthersWatchStays(t *testing.T) {
	w := newWorld(t)
	s := w.guarded(&bouncer{}, func(c *Config) { c.MaxTiles = 2 })
	mallory, bob, ann := s.as(t, "mallory"), s.as(t, "bob"), s.as(t, "ann")
	var names []string
	for i := range 3 {
		names = append(names, (tileA + fence.TileID(i)).String())
	}
	send(t, mallory, subscribeTo(names[:2]...))
	send(t, bob, subscribeTo(names[1]))
	require.NotNil(t, receive(t, bob).GetSync())
	eventually(t, func() bool { return s.Stats().Subscriptions == 3 }, "they watch")
	send(t, ann, subscribeTo(names[2]))
	require.NotNil(t, receive(t, ann).GetSync())
	require.Len(t, s.hubs.watchers(tileA+1), 2)
}

// A thousand actors ask for Sync after Sync. One that has asked for nothing so far is served at once, and so are those
// who ask for little, before those who ask for much.
func TestTheRelaysSyncsAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 1000
		all := newSyncBudget(rate)
		var hostile []*syncBudget
		for range 100 {
			hostile = append(hostile, newSyncBudget(rate))
		}
		try := func(b *syncBudget, bytes int) bool {
			now := time.Now()
			if b.wait(now) > 0 || all.waitOf(b.spent(now), now) > 0 {
				return false
			}
			b.spend(bytes)
			all.spend(bytes)
			return true
		}
		served, taken, began := 0, 0, time.Now()
		for second := range 80 {
			for range 20 {
				for _, b := range hostile {
					if try(b, 40) {
						taken += 40
					}
				}
				time.Sleep(time.Second / 20)
			}
			if second > 50 {
				require.True(t, try(newSyncBudget(rate), 10), "second %d", second)
				served++
			}
		}
		require.Positive(t, served)
		require.LessOrEqual(t, float64(taken), rate*(time.Since(began).Seconds()+syncBurst+syncReserve+1),
			"what all take together has the bound that it had")
	})
}

// Every connection of an actor has the actor's share, also one that comes after another has used it up and left.
func TestConnectionsOfAnActorShare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg, err := (&Config{Limits: Limits{SyncRate: 1000, MaxTilesPerClient: 16}}).withDefaults()
		require.NoError(t, err)
		a := &shares{cfg: &cfg, all: map[string]*share{}}
		first, second := a.enter("actor ann", false), a.enter("actor ann", false)
		require.Same(t, first, second)
		require.NotSame(t, first, a.enter("actor bob", false))
		first.syncs.spend(17 * 1000)
		a.leave(first)
		a.leave(second)
		again := a.enter("actor ann", false)
		require.Positive(t, again.syncs.wait(time.Now()))
		for range 16 * opensBurst {
			require.Zero(t, again.opensWait())
		}
		require.Zero(t, again.opensWait(), "one more than there is makes the next wait")
		require.Positive(t, again.opensWait())
		a.leave(again)
		time.Sleep(2 * syncMemory)
		a.enter("actor cy", false)
		require.Len(t, a.all, 2, "ann's is forgotten when it is full again")
		for i := range 100 {
			require.Equal(t, float64(addressTimes*1000), a.enter(fmt.Sprint("address ", i), true).syncs.rate)
		}
	})
}

// A client that opens tile after tile, each of which is a read of the store, waits; others do not.
func TestOpeningTilesHasABudget(t *testing.T) {
	w := newWorld(t)
	s := w.guarded(&bouncer{}, func(c *Config) { c.MaxTilesPerClient = 16; c.InboundRate = 1000 })
	mallory, ann := s.as(t, "mallory"), s.as(t, "ann")
	began := time.Now()
	for i := range 16*opensBurst + 1 {
		id := (tileA + fence.TileID(i)).String()
		send(t, mallory, subscribeTo(id))
		require.NotNil(t, receive(t, mallory).GetSync())
		send(t, mallory, &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Unsubscribe{
			Unsubscribe: &relaypb.Unsubscribe{Tiles: []string{id}}}})
	}
	send(t, mallory, subscribeTo(tileB.String()))
	send(t, ann, subscribeTo((tileB - 0x1000).String()))
	require.NotNil(t, receive(t, ann).GetSync())
	require.NotNil(t, receive(t, mallory).GetSync())
	require.Greater(t, time.Since(began), 200*time.Millisecond)
}

// What is queued past the bounds has a bound, too.
func TestForcedFramesAreBounded(t *testing.T) {
	q := &queue{}
	q.init(10, 1000)
	for range 10 * forcedTimes {
		q.force([]byte("x"))
	}
	require.False(t, q.closes())
	q.force([]byte("x"))
	require.True(t, q.closes())
	require.LessOrEqual(t, len(q.frames), 10*forcedTimes)
}

func TestSyncBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newSyncBudget(1000)
		sent := 0
		for began := time.Now(); time.Since(began) < 100*time.Second; {
			wait := b.wait(time.Now())
			if wait == 0 {
				b.spend(700)
				sent += 700
			}
			time.Sleep(wait)
		}
		assert.InDelta(t, 1000*(syncBurst+100), sent, 1500)
		time.Sleep(time.Hour)
		require.Zero(t, b.wait(time.Now()))
		b.spend(1000*syncBurst + 2000)
		assert.InDelta(t, 2*time.Second, b.wait(time.Now()), float64(10*time.Millisecond), "an hour saves up no more")
	})
	var none *syncBudget
	none.spend(1 << 40)
	assert.Zero(t, none.wait(time.Now()))
}

// A client asks for the whole tile over and over. It gets no more than its rate, and frames of the tile it watches
// beside it still come; other clients notice nothing.
func TestResyncsHaveABudget(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	cfg := still()
	cfg.SyncRate, cfg.InboundRate = 4<<10, 1000
	s := w.serve(cfg)
	o, calm := w.claim(tileA, 1), w.claim(tileB, 1)
	o.appendPayload(make([]byte, 8<<10), false)
	o.snapshot()
	calm.snapshot()
	c := s.raw(t, relaypb.Subprotocol)
	c.SetReadLimit(1 << 20)
	send(t, c, subscribeTo(tileA.String(), tileB.String()))
	began := time.Now()
	ctx, stop := context.WithTimeout(t.Context(), 4*time.Second)
	defer stop()
	ask, err := proto.Marshal(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{
		Resync: &relaypb.Resync{Tile: tileA.String()}}})
	require.NoError(t, err)
	go func() { // until the reader's end closes the connection
		for c.Write(ctx, websocket.MessageBinary, ask) == nil {
			time.Sleep(2 * time.Millisecond)
		}
	}()
	go func() {
		for ctx.Err() == nil {
			calm.tickOn(1)
			time.Sleep(100 * time.Millisecond)
		}
	}()
	bytes, frames := 0, 0
	for ctx.Err() == nil {
		kind, b, err := c.Read(ctx)
		if err != nil {
			break
		}
		require.Equal(t, websocket.MessageBinary, kind)
		if len(b) > 4<<10 {
			bytes += len(b)
		} else {
			frames++
		}
	}
	allowed := float64(cfg.SyncRate) * (syncBurst + time.Since(began).Seconds())
	assert.LessOrEqual(t, float64(bytes), allowed+16<<10)
	assert.Greater(t, float64(bytes), allowed/2)
	assert.Greater(t, frames, 20, "ten a second")
}

// However many positions clients name, few Syncs are made and kept for them.
func TestSyncsOfManyHeldPositionsAreShared(t *testing.T) {
	w := newWorld(t)
	s := w.serve(still())
	o := w.claim(tileA, 1)
	o.snapshot()
	var held []fence.Position
	for range 200 {
		held = append(held, o.at)
		o.tickOn(1)
	}
	first := s.watch(t, nil, tileA)
	first.reaches(o)
	h := s.hubs.open(tileA, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	made := map[*byte]bool{}
	scratch := 0
	for _, at := range held {
		sub := &subscription{h: h, form: form(relaypb.Binary), has: clientState{at: at}}
		msg := h.syncs.message(&h.view, sub)
		require.NotNil(t, msg)
		made[&msg[0]] = true
		if &msg[0] == &h.syncs.made[syncKey{someAreas: someAreas{sub.form, sub.areas}}][0] {
			scratch++
		}
	}
	assert.Len(t, made, maxTails+1)
	assert.Equal(t, len(held)-maxTails, scratch)
	assert.LessOrEqual(t, h.syncs.bytes, maxSyncBytes)
}
