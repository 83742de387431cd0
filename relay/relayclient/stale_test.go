package relayclient_test

import (
	"context"
	"sync"
	"testing"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// under is a history like history(n) whose batches after the first m are committed under another epoch.
func under(epoch fence.Epoch, n, m int) []fence.Entry {
	all := history(n)[:m]
	for i := m; i < n; i++ {
		all = append(all, batch(epoch, i, all[i-1].Position))
	}
	return all
}

// stales collects Config.Stale.
type stales struct {
	mu  sync.Mutex
	all []relayclient.Stale
}

func (s *stales) note(e relayclient.Stale) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, e)
}

func (s *stales) list() []relayclient.Stale {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]relayclient.Stale(nil), s.all...)
}

// TestLowerEpochIsNotApplied: a relay that is cut off, and does not know the client's floor, offers an older state.
func TestLowerEpochIsNotApplied(t *testing.T) {
	s := newScript(t)
	var events stales
	v, p := view(s, s.url, func(c *relayclient.Config) { c.Stale = events.note })
	h := under(2, 45, 5)
	p.sync(whole(h, 3, 45))
	v.holds(45)
	old := history(6)
	for attempt := 1; attempt <= 5; attempt++ { // without Reconnect the client stays
		p.sync(whole(old, 2, 4))
		p.frame(old[4])
		ask := p.receive().GetResync()
		require.Equal(t, h[44].Position, ask.GetPosition().Fence(), "it asks again from what it holds")
		require.EqualValues(t, 2, ask.GetEpochFloor())
		require.Equal(t, relayclient.Stale{Tile: tile, Floor: 2, Offered: old[3].Position, Attempt: attempt},
			events.list()[attempt-1])
	}
	v.holds(45)
	at, _ := v.Position(tile)
	require.Equal(t, h[44].Position, at)
	require.EqualValues(t, 10, v.Stats().Stale, "five Syncs and five batches")

	more := under(2, 50, 5)
	p.sync(tail(more, 45, 48)) // the relay has caught up
	p.frame(more[48])
	v.holds(49)
	p.sync(whole(old, 2, 4))
	require.NotNil(t, p.receive().GetResync())
	require.Equal(t, 1, events.list()[5].Attempt, "a new episode")
	p.sync(whole(under(3, 60, 50), 4, 60)) // a snapshot of a lower epoch whose tail leads past the floor is in order
	v.holds(60)
}

func TestClientLeavesARelayThatStaysBehind(t *testing.T) {
	s := newScript(t)
	var events stales
	var mu sync.Mutex
	var lost error
	v, p := view(s, s.url, func(c *relayclient.Config) {
		c.Reconnect, c.Stale = true, events.note
		c.Disconnected = func(err error) { mu.Lock(); lost = err; mu.Unlock() }
	})
	h := under(2, 45, 5)
	p.sync(whole(h, 3, 45))
	v.holds(45)
	told := &relaypb.ServerMessage{Tile: tile.String(),
		Body: &relaypb.ServerMessage_Error{Error: &relaypb.Error{Code: relaypb.Code_CODE_STALE}}}
	for range 2 {
		p.send(told)
		p.send(told) // one wait for both
		require.NotNil(t, p.receive().GetResync())
	}
	p.send(told)
	_, _, err := p.conn.Read(context.Background())
	require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
	p.end()
	require.Equal(t, relayclient.Stale{Tile: tile, Floor: 2, Attempt: 3}, events.list()[2])

	p = s.accept()
	held := p.receive().GetSubscribe().GetHeld()
	require.Len(t, held, 1)
	require.Equal(t, h[44].Position, held[0].GetPosition().Fence())
	require.EqualValues(t, 2, held[0].GetEpochFloor())
	mu.Lock()
	require.ErrorIs(t, lost, relayclient.ErrStale)
	mu.Unlock()
	p.sync(tail(under(2, 50, 5), 45, 50))
	v.holds(50)
}

func TestFloorOutlivesANewSubscriptionButNotItsEnd(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	p.sync(whole(under(2, 10, 5), 3, 10))
	v.holds(10)
	require.NoError(t, v.Subscribe(context.Background(), tile))
	held := p.receive().GetSubscribe().GetHeld()
	require.Len(t, held, 1)
	require.Nil(t, held[0].GetPosition(), "everything is asked for")
	require.EqualValues(t, 2, held[0].GetEpochFloor())
	p.sync(whole(history(6), 2, 4))
	require.NotNil(t, p.receive().GetResync(), "and nothing below the floor is taken")

	require.NoError(t, v.Unsubscribe(context.Background(), tile))
	require.NotNil(t, p.receive().GetUnsubscribe())
	require.NoError(t, v.Subscribe(context.Background(), tile))
	require.Equal(t, []string{tile.String()}, p.receive().GetSubscribe().GetTiles())
	p.sync(whole(history(6), 2, 4))
	v.holds(4)
}

// TestDamagedTailIsNotAppliedInPart: a Sync is given to the application as a whole or not at all.
func TestDamagedTailIsNotAppliedInPart(t *testing.T) {
	s := newScript(t)
	v, p := view(s, s.url, nil)
	h := history(10)
	p.sync(whole(h, 3, 5))
	v.holds(5)
	damaged := whole(h, 6, 9)
	damaged.Tail[2].Payload = []byte("damaged")
	p.sync(damaged)
	require.Nil(t, p.receive().GetResync().GetPosition())
	v.holds(5)
	require.EqualValues(t, 1, v.Stats().Corrupt)
	p.sync(whole(h, 6, 9))
	v.holds(9)
}
