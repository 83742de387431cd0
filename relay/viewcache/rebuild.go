package viewcache

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/stream"
)

// A version with a tail as long as this is not extended, but read anew from the snapshot, which has moved by then.
const (
	tailEntries = stream.DefaultLimit
	tailBytes   = 1 << 20
)

// readTimeout bounds one call to the log.
const readTimeout = 2 * time.Second

// turn is one of the places of those that read the log; the zero turn is none.
type turn struct{ places chan struct{} }

// begin takes a place if one is free, or was taken before.
func (t *turn) begin(places chan struct{}) bool {
	if t.places == nil {
		select {
		case places <- struct{}{}:
			t.places = places
		default:
		}
	}
	return t.places != nil
}

// await waits for a place.
func (t *turn) await(ctx context.Context, places chan struct{}, until time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case places <- struct{}{}:
		t.places = places
		return true
	case <-ctx.Done():
		return false
	}
}

func (t *turn) end() {
	if t.places != nil {
		<-t.places
		t.places = nil
	}
}

// rebuild reads what is newer than a version, under the tile's lock, and stores that.
func (c *Cache) rebuild(
	ctx context.Context, w want, token viewstore.Token, have *View, version viewstore.Version,
) (View, error) {
	limited, cancel := context.WithTimeout(ctx, c.cfg.limit)
	defer cancel()
	info := RebuildInfo{Tile: w.tile}
	began := time.Now()
	stop := c.keepLock(limited, w.tile, token)
	v, whole, err := c.read(limited, w.tile, have)
	stop()
	c.count.rebuilds.Add(1)
	info.Position, info.Whole, info.Err = v.Position, whole, err
	defer func() {
		info.Took = time.Since(began)
		hook.Call(c.cfg.Hooks.Rebuilt, info)
	}()
	if err != nil || v.Position.IsZero() { // of a tile that does not exist nothing is stored
		c.unlock(ctx, w.tile, token)
		if err != nil && limited.Err() != nil {
			return c.notShared(ctx, err)
		}
		return v, err
	}
	if verdict := c.save(limited, w.tile, token, &v, version); verdict != 0 {
		info.Verdict = verdict.String()
	}
	return v, nil
}

// keepLock renews the lock until its context ends, so that it ends with its holder and not before. The lock may be
// lost all the same: then the store decides over what this rebuild gives. It does not wait for a call under way, which
// extends no later holder's lock.
func (c *Cache) keepLock(ctx context.Context, tile fence.TileID, token viewstore.Token) (stop func()) {
	ctx, stop = context.WithCancel(ctx)
	go func() {
		for turn := time.NewTicker(c.cfg.lease / 4); ; {
			select {
			case <-ctx.Done():
				turn.Stop()
				return
			case <-turn.C:
			}
			held, err := do(ctx, c, func(ctx context.Context) (bool, error) {
				return c.store.Renew(ctx, tile, token, c.cfg.lease)
			})
			if err == nil && !held {
				c.count.locksLost.Add(1)
				turn.Reset(time.Hour) // the rebuild is bounded, this only waits for its end
			}
		}
	}()
	return stop
}

// unlock lets others try at once. If it fails the lock ends by itself.
func (c *Cache) unlock(ctx context.Context, tile fence.TileID, token viewstore.Token) {
	_, _ = do(context.WithoutCancel(ctx), c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.store.Unlock(ctx, tile, token)
	})
}

// read returns the tile's history as the log has it now: the version that is there and what follows it, or else
// snapshot and tail, whole.
func (c *Cache) read(ctx context.Context, tile fence.TileID, have *View) (v View, whole bool, err error) {
	log := &reader{Log: c.log, count: &c.count}
	if have != nil && len(have.Entries) < tailEntries && have.tailBytes() < tailBytes {
		v, ok, err := extend(ctx, log, tile, have)
		if err != nil || ok {
			return v, false, err
		}
	}
	rec, err := stream.Recover(ctx, log, tile)
	if err == nil {
		err = stream.WatchedSnapshot(tile, &rec.Snapshot)
	}
	if err != nil {
		return View{}, true, err
	}
	for i := range rec.Entries {
		rec.Entries[i] = rec.Entries[i].Watched(fence.AreaSet{})
	}
	c.count.whole.Add(1)
	return View{Recovery: rec, Owner: log.owner}, true, nil
}

// extend reads what follows a view; ok is false when the log does not continue it.
func extend(ctx context.Context, log *reader, tile fence.TileID, have *View) (v View, ok bool, err error) {
	v = *have
	v.Entries = slices.Clone(have.Entries)
	err = stream.Follow(ctx, log, tile, v.Position, func(e *fence.Entry) error {
		if e.Kind == fence.KindRebase {
			return &stream.GapError{Tile: tile, Have: v.Position, Next: *e}
		}
		v.Entries, v.Position = append(v.Entries, e.Watched(fence.AreaSet{})), e.Position
		return nil
	})
	switch {
	case errors.Is(err, stream.ErrGap) || errors.Is(err, fence.ErrCorrupt):
		return View{}, false, nil // a snapshot may lie past it
	case err != nil:
		return View{}, false, err
	}
	o := log.owner
	if !o.Present() || o.Position != v.Position && o.Position.Seq <= v.Position.Seq {
		return View{}, false, nil // the log may have another history, or less of this one
	}
	v.Owner = o
	return v, true, nil
}

func (v *View) tailBytes() (n int) {
	for i := range v.Entries {
		n += len(v.Entries[i].Payload)
	}
	return n
}

// save stores what was read. The view is right whatever becomes of that.
func (c *Cache) save(
	ctx context.Context, tile fence.TileID, token viewstore.Token, v *View, before viewstore.Version,
) (verdict viewstore.Verdict) {
	p := viewstore.Put{Tile: tile, Token: token, At: v.Position, Base: v.Snapshot.Position}
	var err error
	if v.Position != before.At || v.Snapshot.Position != before.Base {
		if p.Tail, err = c.codec.encodeTail(tile, v); err == nil && !p.Base.IsZero() && p.Base != before.Base {
			p.Snapshot, err = c.codec.encodeBase(tile, &v.Snapshot)
		}
	}
	if err == nil {
		verdict, err = c.put(ctx, p)
	}
	if verdict == viewstore.NeedsBase && v.Snapshot.Blob != nil { // it was evicted meanwhile
		if p.Snapshot, err = c.codec.encodeBase(tile, &v.Snapshot); err == nil {
			verdict, err = c.put(ctx, p)
		}
	}
	switch {
	case err != nil:
		c.cfg.Logger.Warn("a view was not stored for other relays", "tile", tile, "error", err)
		if errors.Is(err, viewstore.ErrRefused) || ctx.Err() != nil { // else it does not answer: it is not asked again
			c.unlock(ctx, tile, token)
		}
	case verdict == viewstore.Older:
		c.count.older.Add(1)
		v.Stale = true
	case verdict == viewstore.NeedsBase:
		c.unlock(ctx, tile, token)
	case verdict == viewstore.TooLarge:
		c.count.tooLarge.Add(1)
		c.cfg.Logger.Warn("a view is not shared for want of room: if this repeats, raise the budget of the views",
			"tile", tile, "bytes", len(p.Tail)+len(p.Snapshot))
	default: // stored or confirmed
	}
	return verdict
}

func (c *Cache) put(ctx context.Context, p viewstore.Put) (viewstore.Verdict, error) {
	return do(ctx, c, func(ctx context.Context) (viewstore.Verdict, error) { return c.store.Put(ctx, p) })
}

// reader is a Log that bounds and counts the calls, and remembers the owner hash that came with the last entries.
type reader struct {
	stream.Log
	count *counters
	owner fence.Owner
}

func (l *reader) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	l.count.logReads.Add(1)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	chunks, err := l.Log.Read(ctx, cursors)
	if err == nil {
		l.owner = chunks[0].Owner
	}
	return chunks, err
}

func (l *reader) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	l.count.logReads.Add(1)
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return l.Log.Snapshot(ctx, tile)
}
