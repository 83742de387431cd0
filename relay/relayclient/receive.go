package relayclient

import (
	"context"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
	"github.com/tilefence/tilefence/stream"
)

// tile is the client's view of one tile. The reading goroutine changes it under the client's mutex; the
// calls into the application are made without it.
type tile struct {
	id     fence.TileID
	synced bool           // a first Sync has come
	at     fence.Position // what has been given to the application
	broken bool           // a gap is open
	asked  time.Time      // when a Resync was sent for it; zero: not
}

// receive acts on one message.
func (c *Client) receive(conn *websocket.Conn, m *relaypb.ServerMessage) {
	switch body := m.GetBody().(type) {
	case *relaypb.ServerMessage_Frame:
		if t := c.tile(m.GetTile()); t != nil && t.synced {
			c.frame(conn, t, body.Frame.Entry())
		}
	case *relaypb.ServerMessage_Sync:
		if t := c.tile(m.GetTile()); t != nil {
			c.stats.syncs.Add(1)
			c.sync(conn, t, body.Sync)
		}
	case *relaypb.ServerMessage_Error:
		c.cfg.Refused(Refusal{Tile: m.GetTile(), Code: body.Error.GetCode(), Message: body.Error.GetMessage()})
	case *relaypb.ServerMessage_GoAway:
		c.cfg.GoAway(time.Duration(body.GoAway.GetWithinMs()) * time.Millisecond)
	}
	// Anything else is a newer relay's: ignored, as the protocol says.
}

// tile finds a subscribed tile; nil for one that is not, or not any more.
func (c *Client) tile(name string) *tile {
	id, err := fence.ParseTileID(name)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.tiles[id]
}

// frame applies a batch if it follows, and asks for a Sync if it does not.
func (c *Client) frame(conn *websocket.Conn, t *tile, e fence.Entry) {
	switch {
	case e.Prev == t.at && !e.Rebase:
		if c.apply(t, e) {
			c.mend(t)
			return
		}
	case e.Position == t.at || e.Epoch <= t.at.Epoch && e.Seq <= t.at.Seq:
		c.stats.duplicates.Add(1)
		return
	}
	c.gap(conn, t, t.at)
}

// apply gives one batch that follows to the application; false if it is not what its chain says.
func (c *Client) apply(t *tile, e fence.Entry) bool {
	if !c.cfg.NoVerify && e.Verify(t.id) != nil {
		c.stats.corrupt.Add(1)
		return false
	}
	c.moveTo(t, e.Position)
	c.stats.frames.Add(1)
	c.cfg.Frame(stream.Frame{Tile: t.id, Entry: e})
	return true
}

// sync brings a tile to where the Sync ends, from scratch or from where it stands.
func (c *Client) sync(conn *websocket.Conn, t *tile, s *relaypb.Sync) {
	end := s.GetPosition().Fence()
	if !s.GetReplace() && !t.synced {
		return // of an earlier subscription; the answer to this one is on its way
	}
	if s.GetReplace() {
		snap := fence.Snapshot{
			Position: s.GetFrom().Fence(), Tick: fence.Tick(s.GetTick()),
			Sum: s.GetSum(), Taken: int64(s.GetTakenMs()), Blob: s.GetBlob(),
		}
		if !c.cfg.NoVerify && !snap.IsZero() && snap.Verify(t.id) != nil {
			c.stats.corrupt.Add(1)
			c.gap(conn, t, fence.Position{})
			return
		}
		c.moveTo(t, snap.Position)
		c.cfg.Sync(Sync{
			Tile: t.id, Snapshot: snap, Position: end,
			Owner: fence.Owner{Tile: t.id, Epoch: fence.Epoch(s.GetOwnerEpoch()), Contact: s.GetOwnerContact(), Position: end},
		})
	}
	for _, f := range s.GetTail() {
		e := f.Entry()
		if e.Prev == t.at && !c.apply(t, e) {
			break
		}
	}
	if t.at == end {
		c.mend(t)
		return
	}
	if !s.GetReplace() { // it does not continue what is held: ask for everything, at once
		c.mu.Lock()
		t.asked = time.Time{}
		c.mu.Unlock()
	}
	c.gap(conn, t, fence.Position{})
}

// gap notes that the view does not continue and asks for a Sync from have, once until it is answered.
func (c *Client) gap(conn *websocket.Conn, t *tile, have fence.Position) {
	now := time.Now()
	c.mu.Lock()
	if !t.broken {
		c.stats.gaps.Add(1)
	}
	t.broken = true
	ask := t.asked.IsZero() || now.Sub(t.asked) > c.cfg.ResyncTimeout
	if ask {
		t.asked = now
	}
	c.mu.Unlock()
	if !ask {
		return
	}
	c.stats.resyncs.Add(1)
	body := &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{Tile: t.id.String(), Position: relaypb.FromPosition(have)}}
	// If it cannot be written the connection is going, and reading will notice.
	_ = c.write(context.Background(), conn, &relaypb.ClientMessage{Body: body})
}

// mend notes that the view continues.
func (c *Client) mend(t *tile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.broken {
		c.stats.repaired.Add(1)
	}
	t.broken, t.asked = false, time.Time{}
}

func (c *Client) moveTo(t *tile, p fence.Position) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.at, t.synced = p, true
}
