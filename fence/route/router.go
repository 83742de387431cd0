package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/lru"
	"github.com/tilefence/tilefence/internal/setting"
)

// OwnerReader reads a tile's owner hash. fence.Store is one.
type OwnerReader interface {
	Owner(ctx context.Context, tile fence.TileID) (fence.Owner, error)
}

// RouterConfig holds the optional settings of a Router. Nil and the zero value are valid.
type RouterConfig struct {
	// Known says which contacts may be answered on the word of gossip or a redirect: those of the members, say. The
	// store is asked about others, and the owner that it names is answered: a made-up contact leads nowhere.
	// It is called by every Route, so it must be quick. Nil: all.
	Known func(contact string) bool

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	// MaxTiles bounds the tiles of which the router remembers the store's answer and which answers were found
	// wrong. Beyond it, the least recently used tile is forgotten. The table is not counted. Zero means 65,536.
	MaxTiles int

	// MaxAge is how long Route believes an owner named by the store or a redirect before it asks again, and after
	// what time Confirmed looks into the same rumour again. Zero means 5 s. Gossip does not expire: it is believed
	// until it is found wrong.
	MaxAge time.Duration
}

// Router finds the owners of tiles for one process. Safe for concurrent use.
//
// An answer from gossip costs a look-up in memory. For a tile that gossip does not know, or was wrong about,
// the router keeps a note: the owner according to the store or a redirect, and the lowest epoch at which
// gossip is believed again.
type Router struct {
	table  *Table
	store  OwnerReader
	maxAge time.Duration
	known  func(contact string) bool
	shards []shard // a power of two of them
}

// shard has the notes and counts of some of the tiles, so that callers rarely wait for each other.
type shard struct {
	counts counters
	noted  atomic.Int64 // how many notes there are; without any, gossip needs no lock

	mu        sync.Mutex
	notes     *lru.Map[fence.TileID, note]
	confirmed *lru.Map[fence.TileID, confirmation]

	_ [64]byte // the next shard is on another cache line
}

// note is what the router knows of a tile besides its table.
type note struct {
	owner Entry  // empty contact: not known
	from  source // what named the owner
	at    time.Time

	floor fence.Epoch // gossip of lower epochs was found wrong
}

// NewRouter returns a router over a table, which may be empty and may stay so, and a store. It does no I/O.
// Errors: a *fence.ArgumentError.
func NewRouter(table *Table, store OwnerReader, cfg *RouterConfig) (*Router, error) {
	c := setting.Of(cfg)
	var s setting.Check
	s.Refuse(table == nil, "table", nil, "a Table, empty where there is no gossip")
	s.Refuse(store == nil, "store", nil, "a coordination store")
	if s.Err != nil {
		return nil, s.Err
	}
	maxTiles := cmp.Or(c.tuning.MaxTiles, 65536)
	r := &Router{table: table, store: store, maxAge: cmp.Or(c.tuning.MaxAge, 5*time.Second), known: c.Known,
		shards: make([]shard, shardsFor(maxTiles))}
	for i := range r.shards {
		r.shards[i].notes = lru.New[fence.TileID, note](maxTiles / len(r.shards))
		r.shards[i].confirmed = lru.New[fence.TileID, confirmation](maxTiles / len(r.shards))
	}
	return r, nil
}

// shardsFor is 64, or less where that would leave a shard fewer than 256 notes.
func shardsFor(maxTiles int) int {
	n := max(1, min(64, maxTiles/256))
	return 1 << (bits.Len(uint(n)) - 1)
}

func (r *Router) shard(id fence.TileID) *shard {
	return &r.shards[scatter(id)>>32&uint64(len(r.shards)-1)]
}

// Route names the contact of the tile's owner, as far as any source knows. Errors: a *NoRouteError.
func (r *Router) Route(ctx context.Context, id fence.TileID) (contact string, err error) {
	s := r.shard(id)
	heard, _ := r.table.Lookup(id)
	from := sourceGossip
	contact = heard.Contact
	if s.noted.Load() > 0 {
		contact, from = s.recall(id, heard, r.maxAge)
	}
	if contact == "" {
		return r.ask(ctx, s, id)
	}
	if from != sourceStore && r.known != nil && !r.known(contact) {
		if contact, err = r.Confirmed(ctx, id); err != nil {
			return "", err
		}
		from = sourceStore
	}
	s.counts.answers[from].Add(1)
	return contact, nil
}

// recall chooses between gossip's answer and the tile's note. Either may be missing.
func (s *shard) recall(id fence.TileID, heard Entry, maxAge time.Duration) (contact string, from source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n, noted := s.notes.Get(id)
	if !noted {
		return heard.Contact, sourceGossip
	}
	if n.believed(heard, maxAge) {
		return n.owner.Contact, n.from
	}
	if n.trusts(heard) {
		s.forget(id)
		return heard.Contact, sourceGossip
	}
	return "", 0
}

// believed reports whether the note names the owner to answer with: not when gossip has caught up.
func (n *note) believed(heard Entry, maxAge time.Duration) bool {
	return n.owner.Held() && time.Since(n.at) < maxAge && !n.overruledBy(heard)
}

// trusts reports whether gossip's owner has not been found wrong.
func (n *note) trusts(heard Entry) bool { return heard.Held() && heard.Epoch >= n.floor }

// overruledBy reports whether gossip is at least as recent as the note: it names an owner that was not found
// wrong, or says that the tile was released.
func (n *note) overruledBy(heard Entry) bool {
	return heard.Epoch > 0 && heard.Epoch >= n.owner.Epoch && (n.trusts(heard) || !heard.Held())
}

// read reads the owner hash. Errors: a *NoRouteError.
func (r *Router) read(ctx context.Context, s *shard, id fence.TileID) (owner Entry, asked time.Time, err error) {
	asked = time.Now()
	s.counts.reads.Add(1)
	o, err := r.store.Owner(ctx, id)
	if err != nil || !o.Present() || o.Contact == "" {
		s.counts.failures.Add(1)
		if err != nil {
			s.counts.unread.Add(1)
		}
		return Entry{}, asked, &NoRouteError{Tile: id, Err: err}
	}
	return Entry{Tile: id, Epoch: o.Epoch, Contact: o.Contact}, asked, nil
}

// ask answers with what the owner hash says.
func (r *Router) ask(ctx context.Context, s *shard, id fence.TileID) (string, error) {
	owner, asked, err := r.read(ctx, s, id)
	if err != nil {
		return "", err
	}
	said := note{owner: owner, from: sourceStore, at: asked}
	believed := r.learnFromStore(s, said)
	s.counts.answers[believed.from].Add(1)
	return believed.owner.Contact, nil
}

// learnFromStore notes the store's answer, unless a later owner was named meanwhile, and returns the note to
// answer with.
func (r *Router) learnFromStore(s *shard, said note) note {
	id := said.owner.Tile
	s.mu.Lock()
	defer s.mu.Unlock()
	n, _ := s.notes.Get(id)
	heard, _ := r.table.Lookup(id)
	if n.believed(heard, r.maxAge) && n.owner.Epoch > said.owner.Epoch {
		return n
	}
	said.floor = n.floor
	if heard.Epoch <= said.owner.Epoch {
		// The store has it from the owner's last tick: gossip that says the same is cleared of suspicion,
		// and gossip that says less is stale.
		said.floor = said.owner.Epoch
	}
	s.keep(id, said)
	return said
}

// Correct reports that the process at contact wrong does not own now.Tile, or cannot be reached.
// now is the owner that process named; an empty contact or a zero epoch when it knew none. The next Route
// of this tile does not answer wrong again until another source, or a later announcement, names it.
func (r *Router) Correct(wrong string, now Entry) {
	s := r.shard(now.Tile)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unconfirm(now.Tile, wrong)
	heard, _ := r.table.Lookup(now.Tile)
	n, _ := s.notes.Get(now.Tile)
	latest := n.owner.Epoch
	if n.trusts(heard) || !heard.Held() {
		latest = max(latest, heard.Epoch)
	}
	s.discredit(&n, heard, wrong)
	if named := now.Held() && now.Contact != wrong && now.Epoch > 0; named && now.Epoch >= latest &&
		!(n.trusts(heard) && heard.Epoch == now.Epoch) && // gossip knows
		!(heard.Epoch == now.Epoch && !heard.Held()) { // and has given it up
		n = note{owner: now, from: sourceRedirect, at: time.Now(), floor: max(n.floor, now.Epoch)}
	}
	if n.floor == 0 && !n.owner.Held() {
		s.forget(now.Tile)
		return
	}
	s.keep(now.Tile, n)
}

// discredit marks the source that named wrong as the owner as not to be believed, and counts its answer as stale,
// once.
func (s *shard) discredit(n *note, heard Entry, wrong string) {
	if wrong == "" {
		return
	}
	gossip := heard.Contact == wrong && n.trusts(heard)
	switch {
	case n.owner.Contact == wrong:
		s.counts.stale[n.from].Add(1)
		n.owner = Entry{}
	case gossip:
		s.counts.stale[sourceGossip].Add(1)
	}
	if gossip {
		n.floor = heard.Epoch + 1
	}
}

// keep and forget need the shard's lock.
func (s *shard) keep(id fence.TileID, n note) {
	s.notes.Put(id, n)
	s.noted.Store(int64(s.notes.Len()))
}

func (s *shard) forget(id fence.TileID) {
	s.notes.Remove(id)
	s.noted.Store(int64(s.notes.Len()))
}

// confirmation is what the store said of a tile, and what gossip said at that time.
type confirmation struct {
	owner Entry
	heard fence.Epoch
	at    time.Time
}

// holds reports whether the store need not be asked again, given what gossip says now. Gossip of an epoch above the
// owner's may be news, which the store has too, or a lie: it is looked into once in maxAge.
func (c *confirmation) holds(heard Entry, maxAge time.Duration) bool {
	return heard.Epoch <= c.owner.Epoch || heard.Epoch == c.heard && time.Since(c.at) < maxAge
}

// Confirmed names the contact of the tile's owner according to the store, whatever gossip and redirects say: those are
// the word of processes, which may lie, and where money moves a lie pays. The owner hash is read once for each owner,
// again when gossip knows of a later epoch, and after Correct found the owner wrong. Errors: a *NoRouteError.
func (r *Router) Confirmed(ctx context.Context, id fence.TileID) (contact string, err error) {
	s := r.shard(id)
	heard, _ := r.table.Lookup(id)
	s.mu.Lock()
	known, ok := s.confirmed.Get(id)
	s.mu.Unlock()
	if ok && known.holds(heard, r.maxAge) {
		return known.owner.Contact, nil
	}
	owner, asked, err := r.read(ctx, s, id)
	if err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.confirmed.Put(id, confirmation{owner: owner, heard: heard.Epoch, at: asked})
	return owner.Contact, nil
}

// unconfirm forgets what the store said if it was wrong. It needs the shard's lock.
func (s *shard) unconfirm(id fence.TileID, wrong string) {
	if known, ok := s.confirmed.Get(id); ok && known.owner.Contact == wrong {
		s.confirmed.Remove(id)
	}
}

// ErrNoRoute: no source names an owner of the tile. A *NoRouteError says more.
var ErrNoRoute = errors.New("no route to the tile")

// NoRouteError is a tile whose owner could not be named. Try again: a tile that lost its owner gets
// another, and a store that is down comes back.
type NoRouteError struct {
	Tile fence.TileID
	Err  error // nil: every source was asked, and none names an owner
}

func (e *NoRouteError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("tile %s: %v: it has no owner just now", e.Tile, ErrNoRoute)
	}
	return fmt.Sprintf("tile %s: %v: %v", e.Tile, ErrNoRoute, e.Err)
}

// Is matches ErrNoRoute.
func (e *NoRouteError) Is(target error) bool { return target == ErrNoRoute }

// Unwrap gives the cause.
func (e *NoRouteError) Unwrap() error { return e.Err }
