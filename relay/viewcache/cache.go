package viewcache

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/keyring"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/stream"
)

// ErrNotShared means: the views cannot be had, because the store does not work or a rebuild takes too long. Read the
// coordination store instead.
var ErrNotShared = errors.New("no shared view")

// Config holds the optional settings of a Cache. Nil and the zero value are valid.
type Config struct {
	// Timeout bounds one call to the store of views. After three in a row that fail none is made for a second, so
	// that a store that hangs delays the reads that are under way by Timeout, and after that one read a second.
	// Default 1 s: in a storm of joins the relay itself may be late, and its own reads would then come on top.
	Timeout time.Duration

	// Fresh is how old a version may be that is handed out without asking the coordination store whether there is
	// more. It decides how often that is asked, not what is right: what is missing reaches a relay by its own
	// subscription and its comparisons. Default 1 s.
	Fresh time.Duration

	Hooks  Hooks
	Logger *slog.Logger // nil discards

	tuning
}

// Hooks report what a Cache does, for metrics and alarms. They are called from the goroutine that asked for a view,
// several at once, and must not block.
type Hooks struct {
	// Rebuilt is called after each rebuild of this Cache. Nil: it is not.
	Rebuilt func(RebuildInfo)
}

// RebuildInfo is one read of the log under a tile's lock.
type RebuildInfo struct {
	Tile     fence.TileID
	Position fence.Position // at which what was read ends
	Whole    bool           // snapshot and tail were read; else only what follows the version before
	Took     time.Duration  // until it was stored
	Verdict  string         // of the store of views, such as "stored"; empty: it was not asked, or did not answer
	Err      error          // why there is no view; nil if there is one, stored or not
}

// tuning are settings that only tests change.
type tuning struct {
	lease    time.Duration // of a lock that is not renewed: how long a dead rebuilder is waited for
	patience time.Duration // of one read for another's rebuild
	limit    time.Duration // of a rebuild
	pause    time.Duration // without calls after one that failed
	look     time.Duration // between looks for a version that was not announced, at first
}

// withDefaults returns a copy with every field set, or a *fence.ArgumentError.
func (c *Config) withDefaults() (Config, error) {
	out := setting.Of(c)
	var s setting.Check
	s.Duration("Timeout", &out.Timeout, time.Second)
	s.Duration("Fresh", &out.Fresh, time.Second)
	out.Logger = cmp.Or(out.Logger, slog.New(slog.DiscardHandler))
	out.lease = cmp.Or(out.lease, time.Second)
	out.patience = cmp.Or(out.patience, 2*time.Second)
	out.limit = cmp.Or(out.limit, 5*time.Second)
	out.pause = cmp.Or(out.pause, time.Second)
	out.look = cmp.Or(out.look, 50*time.Millisecond)
	return out, s.Err
}

// Cache hands out views that relays share, and lets one relay at a time read what is missing. Create one with New. All
// methods are safe for concurrent use.
type Cache struct {
	store viewstore.Store
	log   stream.Log
	codec codec
	cfg   Config
	valve valve
	count counters
	reads chan struct{} // one element for each rebuild that reads the log

	refused *slog.Logger // of views, sampled: a process that can write there can cause any number
}

var _ fence.WorldKeeper = (*Cache)(nil)

// EnterWorld implements fence.WorldKeeper, as the store does. A store that keeps none belongs to every world.
func (c *Cache) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	if k, ok := c.store.(fence.WorldKeeper); ok {
		return k.EnterWorld(ctx, w)
	}
	return fence.World{Name: w.Name}, nil
}

// maxReads is how many rebuilds of one Cache read the log at once: as many as a relay reads by itself, by default.
const maxReads = 16

// NewMemory returns a store of views in this process, for tests and for relays that share it.
func NewMemory() viewstore.Store { return viewstore.New() }

// New returns a Cache of what is in log. The store is a *redisviewcache.Store or NewMemory's. The relays that share
// views have the same keys, one or more of at least 16 random bytes, such as those of tilehttp.Keys; processes of
// another world have others. The first signs what this cache stores, all are accepted, so that a key is replaced as
// there. A process that can write to the store of views and has no key can remove views, and slow joins down, but have
// no relay hand out anything. New does no I/O and starts no goroutine; while the cache rebuilds a view, it has one that
// renews the lock. Errors: a *fence.ArgumentError, also without keys: a relay whose Views are nil reads the
// coordination store itself.
func New(store viewstore.Store, log stream.Log, keys [][]byte, cfg *Config) (*Cache, error) {
	switch {
	case len(keys) == 0:
		return nil, &fence.ArgumentError{Field: "keys", Value: "none", Want: "one key or more that the relays which " +
			"share views have, such as Backends.Keys: without one, a process that can write to the store could invent a tile's " +
			"history; to share none, leave relay.Config.Views nil"}
	case store == nil:
		return nil, &fence.ArgumentError{Field: "store", Value: "nil", Want: "where views are kept"}
	case log == nil:
		return nil, &fence.ArgumentError{Field: "log", Value: "nil", Want: "the coordination store to read"}
	}
	c, err := cfg.withDefaults()
	if err := cmp.Or(keyring.Validate("keys", keys), err); err != nil {
		return nil, err
	}
	return &Cache{store: store, log: log, codec: codec{slices.Clone(keys)}, cfg: c,
		valve: valve{pause: c.pause, logger: c.Logger}, reads: make(chan struct{}, maxReads),
		refused: sampled.Logger(c.Logger)}, nil
}

// View returns a whole view of the tile, at least up to need if the log has that; with the zero need one that was the
// newest within Config.Fresh or, while another relay reads that, the version before, Stale. Else it waits. A tile that
// the log knows nothing of gives a zero View.
//
// Errors: ErrNotShared, after Config.Timeout if the store of views does not answer, after 2 s if the relay that
// rebuilds does not come to an end; else what reading the log gave.
func (c *Cache) View(ctx context.Context, tile fence.TileID, need fence.Position) (View, error) {
	return c.get(ctx, want{tile: tile, need: need, snapshot: true})
}

// Tail returns what follows a position: the Entries, and the Position at which they end. It never is Stale; nothing
// follows a position that is later than a version that will do. The rest is as for View. Another error is a
// *stream.GapError: the position is not in the version's tail.
func (c *Cache) Tail(ctx context.Context, tile fence.TileID, after, need fence.Position) (View, error) {
	v, err := c.get(ctx, want{tile: tile, need: need})
	if err != nil {
		return View{}, err
	}
	rest, ok := v.follow(after)
	if viewstore.Before(v.Position, after) {
		return View{Recovery: stream.Recovery{Position: after}, Owner: v.Owner}, nil // the caller has more by now
	}
	if !ok {
		gap := &stream.GapError{Tile: tile, Have: after}
		if len(v.Entries) > 0 {
			gap.Next = v.Entries[0]
		}
		return View{}, gap
	}
	return View{Recovery: stream.Recovery{Entries: rest, Position: v.Position}, Owner: v.Owner}, nil
}

// follow returns the entries after a position of the view.
func (v *View) follow(p fence.Position) (rest []fence.Entry, ok bool) {
	if p == v.Snapshot.Position {
		return v.Entries, true
	}
	for i := len(v.Entries) - 1; i >= 0; i-- {
		if v.Entries[i].Position == p {
			return v.Entries[i+1:], true
		}
	}
	return nil, false
}

// Forget removes the newest version of a tile, which turned out to be of another history than the log's. A relay calls
// it after it has read the log itself.
func (c *Cache) Forget(ctx context.Context, tile fence.TileID) {
	v, found, err := c.find(ctx, tile)
	if err == nil && found {
		c.drop(ctx, tile, v.At)
	}
}

// want is what a caller asks for.
type want struct {
	tile     fence.TileID
	need     fence.Position // zero: a fresh version
	snapshot bool           // a whole view
}

// satisfied reports whether a version will do.
func (w *want) satisfied(v *viewstore.Version, fresh time.Duration) bool {
	if w.need.IsZero() {
		return v.Age >= 0 && v.Age <= fresh // a negative age is that of a clock that was stepped back
	}
	return !viewstore.Before(v.At, w.need)
}

// get returns a version that will do: one that is there, or one that this relay or another reads now.
func (c *Cache) get(ctx context.Context, w want) (View, error) {
	waiting := c.listen(w.tile)
	defer waiting.leave()
	var have *View // at version
	var version viewstore.Version
	var turn turn
	defer turn.end()
	for {
		var newer viewstore.Version
		g, err := do(ctx, c, func(ctx context.Context) (viewstore.Grant, error) {
			return c.store.Lock(ctx, w.tile, version, c.cfg.lease)
		})
		switch {
		case err != nil:
			return c.notShared(ctx, err)
		case g.Token != 0:
			if turn.begin(c.reads) {
				return c.rebuild(ctx, w, g.Token, have, version)
			}
			c.unlock(ctx, w.tile, g.Token) // this relay reads as much as it may, and another one may be free
			if !turn.await(ctx, c.reads, waiting.until) {
				return c.notShared(ctx, errors.New("this relay reads too many others"))
			}
			continue
		case g.Changed && time.Now().Before(waiting.until):
			newer = g.Newest
		case have != nil && w.snapshot && w.need.IsZero():
			c.count.stale.Add(1)
			have.Stale = true
			return *have, nil
		default:
			var ok bool
			turn.end()
			if newer, ok = waiting.wait(ctx); !ok {
				return c.notShared(ctx, errors.New("another relay reads it, and does not come to an end"))
			}
			if newer.Stamp <= version.Stamp {
				continue // nothing was announced, or something late: look again
			}
		}
		if have, version, err = c.values(ctx, w, newer); err != nil {
			return c.notShared(ctx, err)
		}
		if have != nil && w.satisfied(&version, c.cfg.Fresh) {
			c.count.hits.Add(1)
			return *have, nil
		}
	}
}

// notShared is the answer when the store of views is of no help.
func (c *Cache) notShared(ctx context.Context, why error) (View, error) {
	if ctx.Err() != nil {
		return View{}, context.Cause(ctx)
	}
	c.count.notShared.Add(1)
	return View{}, errors.Join(ErrNotShared, why)
}

// values reads a version; have is nil, and the version zero, if there is none or it cannot be used.
func (c *Cache) values(
	ctx context.Context, w want, v viewstore.Version,
) (have *View, version viewstore.Version, err error) {
	if v.At.IsZero() {
		return nil, viewstore.Version{}, nil
	}
	type values struct{ base, tail []byte }
	got, err := do(ctx, c, func(ctx context.Context) (got values, err error) {
		got.base, got.tail, err = c.store.Values(ctx, w.tile, v, w.snapshot)
		return got, err
	})
	if err != nil {
		return nil, viewstore.Version{}, err
	}
	if got.tail == nil || w.snapshot && got.base == nil && !v.Base.IsZero() {
		c.count.missing.Add(1) // evicted by the server, or this relay was paused for longer than the grace
		c.drop(ctx, w.tile, v.At)
		return nil, viewstore.Version{}, nil
	}
	have, err = c.codec.decodeTail(w.tile, v, got.tail)
	if err == nil && w.snapshot && !v.Base.IsZero() {
		err = c.codec.decodeBase(w.tile, have, got.base)
	}
	if err != nil {
		c.count.corrupt.Add(1)
		c.refused.Warn("a cached view is damaged, or not of this deployment: it is removed and read again",
			"tile", w.tile, "error", err)
		c.drop(ctx, w.tile, v.At)
		return nil, viewstore.Version{}, nil
	}
	return have, v, nil
}

func (c *Cache) find(ctx context.Context, tile fence.TileID) (v viewstore.Version, found bool, err error) {
	v, err = do(ctx, c, func(ctx context.Context) (v viewstore.Version, err error) {
		v, found, err = c.store.Find(ctx, tile)
		return v, err
	})
	return v, found, err
}

func (c *Cache) drop(ctx context.Context, tile fence.TileID, at fence.Position) {
	_, _ = do(ctx, c, func(ctx context.Context) (struct{}, error) {
		return struct{}{}, c.store.Drop(ctx, tile, at) // what is left is found again
	})
}

// do makes one call to the store, if it works.
func do[T any](ctx context.Context, c *Cache, call func(context.Context) (T, error)) (T, error) {
	var none T
	a, ok := c.valve.open()
	if !ok {
		return none, errClosed
	}
	bounded, cancel := context.WithTimeout(ctx, c.cfg.Timeout)
	defer cancel()
	v, err := call(bounded)
	if err != nil {
		c.count.failures.Add(1)
	}
	switch {
	case err == nil || errors.Is(err, viewstore.ErrRefused):
		c.valve.works()
	case ctx.Err() == nil: // else the caller has left, which says nothing of the store
		c.valve.failed(a, bounded.Err() != nil, err)
	default:
		c.valve.unknown(a)
	}
	return v, err
}

// waiter waits for a rebuild by another relay: for its announcement, and for the moment to look for itself, since
// announcements may be lost.
type waiter struct {
	cache *Cache
	until time.Time
	next  time.Duration
	heard chan announced // the last one
	leave func()
	waits bool // it has
}

// announced is a version that was the newest at a time of this process.
type announced struct {
	viewstore.Version
	at time.Time
}

// listen begins to listen. It is called before Lock, so that no announcement is missed.
func (c *Cache) listen(tile fence.TileID) *waiter {
	w := &waiter{cache: c, until: time.Now().Add(c.cfg.patience), next: c.cfg.look, heard: make(chan announced, 1)}
	w.leave = c.store.Listen(tile, func(v viewstore.Version) {
		select {
		case <-w.heard:
		default:
		}
		select {
		case w.heard <- announced{v, time.Now()}:
		default:
		}
	})
	return w
}

// wait returns true when it is worth looking again, with the version that was announced, if one was; and false when
// that has been done for long enough.
func (w *waiter) wait(ctx context.Context) (v viewstore.Version, again bool) {
	if !w.waits {
		w.waits = true
		w.cache.count.waits.Add(1)
	}
	left := time.Until(w.until)
	if left <= 0 {
		return v, false
	}
	t := time.NewTimer(min(left, w.next))
	defer t.Stop()
	w.next = min(2*w.next, 4*w.cache.cfg.look)
	select {
	case a := <-w.heard:
		v = a.Version
		v.Age = time.Since(a.at)
	case <-t.C:
	case <-ctx.Done():
		return v, false
	}
	return v, true
}
