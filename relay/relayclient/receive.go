package relayclient

import (
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/wait"
)

// tile is the client's view of one tile. The reading goroutine changes it under the client's mutex; the
// calls into the application are made without it.
type tile struct {
	id     fence.TileID
	areas  fence.AreaSet  // the areas to watch
	added  []addition     // by Watches that the relay has not answered yet
	held   fence.AreaSet  // those of them that have been given to the application, once synced
	synced bool           // a first Sync has come
	at     fence.Position // what has been given to the application
	floor  fence.Epoch    // the highest epoch that was given to the application; nothing below it is given
	broken bool           // a gap is open
	asked  time.Time      // when a Resync was sent for it; zero: not
	stale  int            // how often relays have offered less than the floor since the view last continued
	again  *time.Timer    // asks again while a relay is behind; nil: not waiting
	// when a relay first said, since the view last continued, that the store knows no epoch as high as the floor
	unknown time.Time
}

// forgetAfter is for how long relays must have said that the store knows no epoch as high as a tile's floor before the
// client forgets the floor. A failover, or a store that a relay reads behind a partition, is over by then; a true epoch
// is reported to the store by those that have shown it.
const forgetAfter = 30 * time.Second

// staleAsks is how often one relay that is behind is asked before a client with Config.Reconnect leaves it.
const staleAsks = 3

// receive acts on one message.
func (c *Client) receive(conn *connection, m *relaypb.ServerMessage) {
	switch body := m.GetBody().(type) {
	case *relaypb.ServerMessage_Frame:
		if t := c.tile(m.GetTile()); t != nil && t.synced {
			c.frame(conn, t, body.Frame.Entry(t.id))
		}
	case *relaypb.ServerMessage_Sync:
		if t := c.tile(m.GetTile()); t != nil {
			c.stats.syncs.Add(1)
			c.sync(conn, t, body.Sync)
		}
	case *relaypb.ServerMessage_Error:
		code := body.Error.GetCode()
		if t := c.tile(m.GetTile()); t != nil &&
			(code == relaypb.Code_CODE_STALE || code == relaypb.Code_CODE_UNKNOWN_EPOCH) {
			if code == relaypb.Code_CODE_STALE || !c.forget(conn, t) {
				c.behind(conn, t, fence.Position{})
			}
			return
		}
		hook.Call(c.cfg.Refused,
			Refusal{Tile: m.GetTile(), Code: body.Error.GetCode().String(), Message: body.Error.GetMessage()})
	case *relaypb.ServerMessage_Session:
		c.extend(time.Duration(body.Session.GetExpiresInMs()) * time.Millisecond)
	case *relaypb.ServerMessage_Heartbeat:
		conn.expect(time.Duration(body.Heartbeat.GetIntervalMs()) * time.Millisecond)
		c.remind(conn)
	case *relaypb.ServerMessage_GoAway:
		hook.Call(c.cfg.GoAway, time.Duration(body.GoAway.GetWithinMs())*time.Millisecond)
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
func (c *Client) frame(conn *connection, t *tile, e fence.Entry) {
	switch {
	case e.Epoch < t.floor:
		c.stats.stale.Add(1) // of a superseded owner; what follows it shows whether the relay is behind
		return
	case e.Prev == t.at && e.Kind != fence.KindRebase:
		if e.Verify() == nil {
			c.apply(t, e)
			c.mend(t)
			return
		}
		c.stats.corrupt.Add(1)
	case e.Position == t.at || e.Epoch <= t.at.Epoch && e.Seq <= t.at.Seq:
		c.stats.duplicates.Add(1)
		return
	}
	c.gap(conn, t, true)
}

// apply gives one batch that follows to the application.
func (c *Client) apply(t *tile, e fence.Entry) {
	c.give(e, c.moveTo(t, e.Position))
}

// give gives the parts of a batch that are of some areas to the application.
func (c *Client) give(e fence.Entry, areas fence.AreaSet) {
	c.stats.frames.Add(1)
	hook.Call(c.cfg.Frame, e.Watched(areas))
}

// sync brings a tile to where the Sync ends, from scratch or from where it stands. Nothing of a Sync is given to
// the application unless all of it is intact and at or above the epoch floor.
func (c *Client) sync(conn *connection, t *tile, s *relaypb.Sync) {
	end := s.GetPosition().Fence()
	switch {
	case !s.GetReplace() && !t.synced:
		return // of an earlier subscription; the answer to this one is on its way
	case s.GetOpens():
		c.open(conn, t, s)
		return
	case end.Epoch < t.floor:
		c.stats.stale.Add(1)
		c.behind(conn, t, end)
		return
	}
	start := t.at
	if s.GetReplace() {
		start = s.GetFrom().Fence()
	}
	tail, ok := c.check(t, start, s)
	brings, err := relaypb.ToAreas(s.GetAreas())
	if !ok || err != nil {
		if !s.GetReplace() { // it does not continue what is held: ask for everything, at once
			c.mu.Lock()
			t.asked = time.Time{}
			c.mu.Unlock()
		}
		c.gap(conn, t, false)
		return
	}
	if s.GetReplace() {
		c.mu.Lock()
		brings = t.counts(brings, s.GetWatch())
		t.held = brings
		c.mu.Unlock()
		c.moveTo(t, start)
		hook.Call(c.cfg.Sync, event(t, s, brings))
	}
	for _, e := range tail {
		c.apply(t, e)
	}
	c.mend(t)
}

// open takes up areas that the client watches newly, at the position that it holds.
func (c *Client) open(conn *connection, t *tile, s *relaypb.Sync) {
	tail, ok := c.check(t, s.GetFrom().Fence(), s)
	brings, err := relaypb.ToAreas(s.GetAreas())
	if !ok || err != nil || s.GetPosition().Fence() != t.at {
		c.gap(conn, t, false)
		return
	}
	c.mu.Lock()
	brings, some := t.counts(brings, s.GetWatch()).Without(t.held)
	if some {
		t.held = t.held.Or(brings)
	}
	c.mu.Unlock()
	if !some {
		return // no longer wanted
	}
	hook.Call(c.cfg.Sync, event(t, s, brings))
	for _, e := range tail {
		c.give(e, brings)
	}
}

// addition is the areas that a Watch has added.
type addition struct {
	number uint32
	areas  fence.AreaSet
}

// counts are those areas of a Sync that the client has watched without a break since a Watch: the last that the relay
// had seen when it made the Sync. Others were left meanwhile, and batches with their events may be missing. The mutex
// is held.
func (t *tile) counts(areas fence.AreaSet, watch uint32) fence.AreaSet {
	t.added = slices.DeleteFunc(t.added, func(a addition) bool { return a.number <= watch })
	areas = areas.And(t.areas)
	for _, a := range t.added {
		areas, _ = areas.Without(a.areas) // area 0 is never added, so something is left
	}
	return areas
}

// event is a Sync as the application is given it, with what it brings of some areas.
func event(t *tile, s *relaypb.Sync, areas fence.AreaSet) Sync {
	end := s.GetPosition().Fence()
	snap := snapshotOf(s)
	if s.GetDivided() {
		if blob, rest := fence.SelectParts(snap.Blob, areas); rest != 0 {
			snap.Blob, snap.Sum = blob, fence.Checksum(blob)
		}
	}
	return Sync{
		Tile: t.id, Snapshot: snap, Position: end, Areas: areas, Opens: s.GetOpens(), Divided: s.GetDivided(),
		Owner: fence.Owner{Tile: t.id, Epoch: fence.Epoch(s.GetOwnerEpoch()), Contact: s.GetOwnerContact(),
			Position: end},
	}
}

func snapshotOf(s *relaypb.Sync) fence.Snapshot {
	return fence.Snapshot{
		Position: s.GetFrom().Fence(), Tick: fence.Tick(s.GetTick()),
		Sum: s.GetSum(), Taken: fence.FromMillis(int64(s.GetTakenMs())), Blob: s.GetBlob(),
	}
}

// check reads the tail of a Sync: the batches that follow start. It reports whether they lead to the Sync's position,
// and whether they and the snapshot are what their sums say. Batches that the client already
// holds are left out.
func (c *Client) check(t *tile, start fence.Position, s *relaypb.Sync) (tail []fence.Entry, ok bool) {
	at := start
	for _, f := range s.GetTail() {
		e := f.Entry(t.id)
		if e.Prev != at {
			continue
		}
		if e.Verify() != nil {
			c.stats.corrupt.Add(1)
			return nil, false
		}
		tail, at = append(tail, e), e.Position
	}
	snap := snapshotOf(s)
	given := len(snap.Blob) > 0 || s.GetReplace() && !snap.IsZero()
	if given && snap.Verify(t.id) != nil {
		c.stats.corrupt.Add(1)
		return nil, false
	}
	return tail, at == s.GetPosition().Fence()
}

// behind notes that the relay offers less than the client was shown, and asks again after a pause that doubles
// each time. The relay may catch up, or the next connection may reach another one.
func (c *Client) behind(conn *connection, t *tile, offered fence.Position) {
	c.mu.Lock()
	if t.again != nil { // it is asked again soon
		c.mu.Unlock()
		return
	}
	t.stale++
	t.again = time.AfterFunc(wait.Backoff(c.cfg.BackoffMin, c.cfg.BackoffMax, t.stale), func() { c.askAgain(conn, t) })
	event := Stale{Tile: t.id, Floor: t.floor, Offered: offered, Attempt: t.stale}
	c.mu.Unlock()
	c.cfg.Logger.Warn("the relay is behind this client", "tile", t.id, "floor", uint64(event.Floor),
		"offered", offered, "attempt", event.Attempt)
	hook.Call(c.cfg.Stale, event)
}

// forget gives up a floor that the store has contradicted for forgetAfter, and what is held with it: a relay has shown
// what never was. It asks for everything, and reports whether it did.
func (c *Client) forget(conn *connection, t *tile) bool {
	c.asking.Lock()
	defer c.asking.Unlock()
	c.mu.Lock()
	if t.unknown.IsZero() {
		t.unknown = time.Now()
	}
	if time.Since(t.unknown) < forgetAfter {
		c.mu.Unlock()
		return false
	}
	c.cfg.Logger.Error("the store does not know an epoch that this client was shown: the tile starts over",
		"tile", t.id, "floor", uint64(t.floor), "at", t.at)
	t.rest()
	t.at, t.floor, t.synced, t.stale, t.unknown = fence.Position{}, 0, false, 0, time.Time{}
	message := t.resync(fence.Position{})
	c.mu.Unlock()
	c.stats.resyncs.Add(1)
	_ = conn.send(c.ctx, message) // if it cannot be written, the connection is lost and reading notices
	return true
}

// askAgain sends a Resync to a relay that was behind, or leaves it for another one.
func (c *Client) askAgain(conn *connection, t *tile) {
	c.asking.Lock()
	c.mu.Lock()
	due := c.conn == conn && c.tiles[t.id] == t && t.again != nil
	leave := due && c.cfg.Reconnect && t.stale%staleAsks == 0
	if due {
		t.again = nil
	}
	if leave {
		c.left = ErrStale
	}
	ask := t.resync(t.position())
	c.mu.Unlock()
	if due && !leave {
		c.stats.resyncs.Add(1)
		_ = conn.send(c.ctx, ask) // if it cannot be written, the connection is lost and reading notices
	}
	c.asking.Unlock()
	if leave { // outside, because it waits for the relay
		_ = conn.Close(websocket.StatusNormalClosure, "this relay is behind")
	}
}

func (t *tile) resync(have fence.Position) *relaypb.ClientMessage {
	return &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{
		Tile: t.id.String(), Position: relaypb.FromPosition(have), EpochFloor: uint64(t.floor),
	}}}
}

// position is what the client says that it holds: nothing while areas that it watches are still to come.
func (t *tile) position() fence.Position {
	if _, missing := t.areas.Without(t.held); missing {
		return fence.Position{}
	}
	return t.at
}

// rest stops asking a relay that was behind. The mutex is held.
func (t *tile) rest() {
	if t.again != nil {
		t.again.Stop()
		t.again = nil
	}
}

// resyncTimeout is after what time a Resync that was not answered is sent again.
const resyncTimeout = 5 * time.Second

// gap notes that the view does not continue and asks for a Sync, once until it is answered: from what is held if that
// is of use, else from scratch.
func (c *Client) gap(conn *connection, t *tile, useful bool) {
	now := time.Now()
	c.asking.Lock() // a Resync must not name a position from before a Watch that is written first
	defer c.asking.Unlock()
	c.mu.Lock()
	var have fence.Position
	if useful {
		have = t.position()
	}
	if !t.broken {
		c.stats.gaps.Add(1)
	}
	t.broken = true
	ask := t.asked.IsZero() || now.Sub(t.asked) > resyncTimeout
	if ask {
		t.asked = now
	}
	message := t.resync(have)
	c.mu.Unlock()
	if !ask {
		return
	}
	c.stats.resyncs.Add(1)
	_ = conn.send(c.ctx, message) // if it cannot be written, the connection is lost and reading notices
}

// remind asks again where an answer is overdue. Without frames, nothing else would.
func (c *Client) remind(conn *connection) {
	c.mu.Lock()
	var overdue []*tile
	for _, t := range c.tiles {
		if t.broken && !t.asked.IsZero() && time.Since(t.asked) > resyncTimeout {
			overdue = append(overdue, t)
		}
	}
	c.mu.Unlock()
	for _, t := range overdue {
		c.gap(conn, t, false)
	}
}

// mend notes that the view continues.
func (c *Client) mend(t *tile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.broken {
		c.stats.repaired.Add(1)
	}
	t.broken, t.asked, t.stale, t.unknown = false, time.Time{}, 0, time.Time{}
	t.rest()
}

// moveTo notes a position, and returns the areas that are held there.
func (c *Client) moveTo(t *tile, p fence.Position) fence.AreaSet {
	c.mu.Lock()
	defer c.mu.Unlock()
	t.at, t.synced, t.floor = p, true, max(t.floor, p.Epoch)
	return t.held
}
