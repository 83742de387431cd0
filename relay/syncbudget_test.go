package relay

import (
	"context"
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
