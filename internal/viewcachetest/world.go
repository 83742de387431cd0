package viewcachetest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/stream"
)

// World writes the histories of tiles and remembers them, so that an auditor can compare views with them. It is the
// only owner of its tiles. All methods may be called from any goroutine.
type World struct {
	Store fence.Store
	Bytes int // of a payload, by which the state grows at each batch
	State int // bytes of a state that is followed by a short one; default 64 KiB

	mu      sync.Mutex
	tiles   map[fence.TileID]*history
	emptied atomic.Int64 // twice for each Empty; odd while one is under way
}

// history is all that was ever committed to a tile.
type history struct {
	mu      sync.Mutex
	epoch   fence.Epoch
	tick    fence.Tick
	at      fence.Position
	state   []byte
	entries map[fence.Position]fence.Entry
	states  map[fence.Position][32]byte // digests
	heads   []headAt                    // in the order of time

	compared fence.Position // how far the log has been compared with the entries
	given    given          // by views so far
}

func (w *World) of(tile fence.TileID) *history {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.tiles == nil {
		w.tiles = map[fence.TileID]*history{}
	}
	h := w.tiles[tile]
	if h == nil {
		h = &history{entries: map[fence.Position]fence.Entry{}, states: map[fence.Position][32]byte{}}
		w.tiles[tile] = h
	}
	return h
}

// secret is the part of batches and snapshots that must not be in a view.
var secret = []byte("for owners only")

// Commit appends a batch to a tile and returns it. The first one installs the owner.
func (w *World) Commit(ctx context.Context, tile fence.TileID) (fence.Entry, error) {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.commit(ctx, h, tile, h.epoch == 0)
}

// TakeOver begins a new epoch of a tile.
func (w *World) TakeOver(ctx context.Context, tile fence.TileID) (fence.Entry, error) {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.commit(ctx, h, tile, true)
}

func (w *World) commit(ctx context.Context, h *history, tile fence.TileID, install bool) (fence.Entry, error) {
	epoch := h.epoch
	if install {
		epoch++
	}
	payload := fmt.Appendf(make([]byte, 0, w.Bytes+32), "%d/%d ", epoch, h.tick+1)
	payload = append(payload, bytes.Repeat([]byte{byte(h.tick)}, w.Bytes)...)
	c := fence.Commit{Tile: tile, Epoch: epoch, Contact: fmt.Sprint("owner-", epoch), Prev: h.at, Tick: h.tick + 1,
		At: time.Now(), Payload: payload, Private: secret, Install: install}
	r, err := w.Store.Commit(ctx, c)
	if err != nil {
		return fence.Entry{}, err
	}
	h.epoch, h.at, h.tick = epoch, r.Position, h.tick+1
	e := c.Entry()
	return e, h.note(&e, cmp.Or(w.State, 64<<10))
}

// note remembers an entry and what the state is after it.
func (h *history) note(e *fence.Entry, most int) error {
	if e.Position != h.at {
		return fmt.Errorf("the store says %s of a batch at %s", h.at, e.Position)
	}
	if len(h.state) > most { // the state must not grow for ever
		sum := sha256.Sum256(append(h.state, e.Payload...))
		h.state = sum[:]
	}
	h.state = append(h.state, e.Payload...)
	h.entries[e.Position] = e.Watched(fence.AreaSet{})
	h.states[e.Position] = sha256.Sum256(h.state)
	h.heads = append(h.heads, headAt{time.Now(), e.Position})
	return nil
}

// Snapshot saves the state of a tile.
func (w *World) Snapshot(ctx context.Context, tile fence.TileID) error {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	return w.Store.SaveSnapshot(ctx, fence.SnapshotWrite{Tile: tile, Position: h.at, Tick: h.tick,
		Blob: stream.AppendSnapshot(nil, h.state, secret)})
}

// Head is the position at which a tile's history ends.
func (w *World) Head(tile fence.TileID) fence.Position {
	h := w.of(tile)
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at
}

// Log counts the calls that read a tile's history, and fails or waits on demand.
type Log struct {
	stream.Log
	Reads, Snapshots, Lasts atomic.Int64
	Before                  func(ctx context.Context) error // called before each; may be nil
}

func (l *Log) before(ctx context.Context, n *atomic.Int64) error {
	n.Add(1)
	if l.Before == nil {
		return nil
	}
	return l.Before(ctx)
}

// Read implements stream.Log.
func (l *Log) Read(ctx context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	if err := l.before(ctx, &l.Reads); err != nil {
		return nil, err
	}
	return l.Log.Read(ctx, cursors)
}

// Snapshot implements stream.Log.
func (l *Log) Snapshot(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := l.before(ctx, &l.Snapshots); err != nil {
		return fence.Snapshot{}, false, err
	}
	return l.Log.Snapshot(ctx, tile)
}

// Last implements stream.Log.
func (l *Log) Last(ctx context.Context, tile fence.TileID) (fence.Position, error) {
	if err := l.before(ctx, &l.Lasts); err != nil {
		return fence.Position{}, err
	}
	return l.Log.Last(ctx, tile)
}

// Calls is how many calls there were.
func (l *Log) Calls() int64 { return l.Reads.Load() + l.Snapshots.Load() + l.Lasts.Load() }

// Broken is a Store with a hand on it. Nil functions change nothing.
type Broken struct {
	viewstore.Store
	Down       atomic.Bool  // every call fails at once
	Hang       atomic.Bool  // every call lasts until its context ends
	Looks      atomic.Int64 // calls of Lock
	Hung       atomic.Int64 // calls that have hung
	Deaf       bool         // nothing is heard of announcements
	NoRenewal  bool         // locks are not renewed: the process is paused
	BeforePut  func()
	BeforeRead func() // before Values
	Change     func(value []byte) []byte
}

var errDown = errors.New("the store of views is down")

func (b *Broken) step(ctx context.Context) error {
	switch {
	case b.Hang.Load():
		b.Hung.Add(1)
		<-ctx.Done()
		return ctx.Err()
	case b.Down.Load():
		return errDown
	}
	return nil
}

// Find implements viewstore.Store.
func (b *Broken) Find(ctx context.Context, tile fence.TileID) (viewstore.Version, bool, error) {
	if err := b.step(ctx); err != nil {
		return viewstore.Version{}, false, err
	}
	return b.Store.Find(ctx, tile)
}

// Values implements viewstore.Store.
func (b *Broken) Values(
	ctx context.Context, tile fence.TileID, v viewstore.Version, snapshot bool,
) (base, tail []byte, err error) {
	if b.BeforeRead != nil {
		b.BeforeRead()
	}
	if err := b.step(ctx); err != nil {
		return nil, nil, err
	}
	base, tail, err = b.Store.Values(ctx, tile, v, snapshot)
	if b.Change != nil {
		base, tail = b.Change(slices.Clone(base)), b.Change(slices.Clone(tail))
	}
	return base, tail, err
}

// Lock implements viewstore.Store.
func (b *Broken) Lock(
	ctx context.Context, tile fence.TileID, seen viewstore.Version, lease time.Duration,
) (viewstore.Grant, error) {
	b.Looks.Add(1)
	if err := b.step(ctx); err != nil {
		return viewstore.Grant{}, err
	}
	return b.Store.Lock(ctx, tile, seen, lease)
}

// Renew implements viewstore.Store.
func (b *Broken) Renew(
	ctx context.Context, tile fence.TileID, token viewstore.Token, lease time.Duration,
) (bool, error) {
	if b.NoRenewal {
		return true, nil
	}
	if err := b.step(ctx); err != nil {
		return false, err
	}
	return b.Store.Renew(ctx, tile, token, lease)
}

// Put implements viewstore.Store.
func (b *Broken) Put(ctx context.Context, p viewstore.Put) (viewstore.Verdict, error) {
	if b.BeforePut != nil {
		b.BeforePut()
		ctx = context.WithoutCancel(ctx) // it was on its way
	}
	if err := b.step(ctx); err != nil {
		return 0, err
	}
	return b.Store.Put(ctx, p)
}

// Unlock implements viewstore.Store.
func (b *Broken) Unlock(ctx context.Context, tile fence.TileID, token viewstore.Token) error {
	if err := b.step(ctx); err != nil {
		return err
	}
	return b.Store.Unlock(ctx, tile, token)
}

// Listen implements viewstore.Store.
func (b *Broken) Listen(tile fence.TileID, heard func(viewstore.Version)) (stop func()) {
	if b.Deaf {
		return func() {}
	}
	return b.Store.Listen(tile, heard)
}
