package directory

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/wait"
)

const (
	gather       = 100 * time.Millisecond // what is new travels together
	storeTimeout = 3 * time.Second        // of one call
	batchSize    = 1000                   // players, or moves, of one call
	mostMoves    = 16_384                 // that wait to be written
	seenAgain    = time.Second            // after which a player who is seen in another tile is written at once
)

// Store keeps the records: what NewMemory or redisdirectory.New returns.
type Store = directorystore.Store

// Move says that a player is in a tile now: the tile has committed the arrival there, or a process has seen the player
// act there.
type Move = directorystore.Move

// ErrOverloaded means: too many look-ups wait for the server that has the player's record, since it is slow or does not
// answer. This one was not sent, and may be tried again.
var ErrOverloaded = directorystore.ErrOverloaded

// NewMemory returns an empty store for one process. It keeps what it has until the process ends.
func NewMemory() Store { return directorystore.NewMemory() }

// Config holds the optional settings of a Directory.
type Config struct {
	// End ends the sessions that this process has of a player, and returns how many: EndActor of a gatewayws.Handler or
	// a relay.Relay. It must not wait. Nil: this process has no sessions.
	End func(actor string) int

	// Tell hands a message to the sessions that this process has of a player, and returns how many took it: Tell of a
	// gatewayws.Handler. It must not wait. Nil: none takes any.
	Tell func(actor string, message []byte) int

	// Logger takes what the store does not do. Nil discards.
	Logger *slog.Logger
}

// Stats is what a Directory has done since it was made, and what it holds now.
type Stats struct {
	Players int    // of whom this process has sessions
	Failed  uint64 // calls of the store that failed
	Dropped uint64 // moves that were not written, for lack of room
	Ended   uint64 // sessions that End has ended here
}

// Directory is one process's part: it renews the leases of the sessions that the process has, writes where players have
// arrived, and reaches the sessions of other processes. Create one with New.
type Directory struct {
	store Store
	cfg   Config
	name  string
	ran   atomic.Bool
	wake  chan struct{} // there is something new

	mu    sync.Mutex
	here  map[string]*local
	fresh map[string]bool // players whose leases are to be renewed, or given up, at once
	moves []Move
	stats Stats
}

// local is what a process knows of a player of whom it has sessions.
type local struct {
	sessions int
	since    time.Time    // when the first of them began, or they were ended here
	tile     fence.TileID // where the player acted last; zero: nowhere yet
	seen     time.Time    // when
	renewed  time.Time    // when the lease was to be renewed at once
}

// New returns a process's part in the directory that store keeps. It does no I/O. A nil cfg is that of a process
// without sessions. Errors: a *fence.ArgumentError.
func New(store Store, cfg *Config) (*Directory, error) {
	var check setting.Check
	check.Refuse(store == nil, "store", "nil", "a directory.Store")
	c := setting.Of(cfg)
	c.Logger = sampled.Reminder(cmp.Or(c.Logger, slog.New(slog.DiscardHandler)))
	return &Directory{store: store, cfg: c, name: rand.Text(), wake: make(chan struct{}, 1),
		here: map[string]*local{}, fresh: map[string]bool{}}, check.Err
}

// Enter counts a session of a player here, of which the handshake has begun at a time: if sessions were ended since,
// this one is ended, too.
func (d *Directory) Enter(actor string, began time.Time) {
	if directorystore.Validate(actor) != nil {
		return // a stranger
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	l := d.here[actor]
	if l == nil {
		l = &local{since: began}
		d.here[actor] = l
	}
	if began.Before(l.since) {
		l.since = began
	}
	l.sessions++
	d.renewSoon(actor, l, now)
}

// renewSoon has a lease renewed at once. d.mu is held.
func (d *Directory) renewSoon(actor string, l *local, now time.Time) {
	l.renewed = now
	d.fresh[actor] = true
	wait.Wake(d.wake)
}

// Left counts a session out.
func (d *Directory) Left(actor string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.here[actor]
	if l == nil {
		return
	}
	if l.sessions--; l.sessions == 0 {
		delete(d.here, actor)
		d.fresh[actor] = true
		wait.Wake(d.wake)
	}
}

// Seen notes that an intent of a player, sent at a time, was applied in a tile. It is for players of whom this process
// has sessions; of others it does nothing. If the record is older and has another tile, it is corrected: at once, or
// within 10 s if the player has been seen in another tile just before.
func (d *Directory) Seen(actor string, tile fence.TileID, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.here[actor]
	if l == nil || at.Before(l.seen) {
		return
	}
	if l.seen = at; l.tile == tile {
		return
	}
	l.tile = tile
	if now := time.Now(); now.Sub(l.renewed) > seenAgain {
		d.renewSoon(actor, l, now)
	}
}

// Moved has arrivals written. It does not wait.
func (d *Directory) Moved(moves ...Move) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range moves {
		switch {
		case directorystore.Validate(moves[i].Actor) != nil: // no player's
		case len(d.moves) >= mostMoves:
			d.stats.Dropped++
		default:
			d.moves = append(d.moves, moves[i])
		}
	}
	wait.Wake(d.wake)
}

// Stats returns the figures.
func (d *Directory) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.stats
	s.Players = len(d.here)
	return s
}

// Where says in which tile a player is, as far as the directory knows; zero: it is not known. Errors: a
// *fence.ArgumentError; a *fence.StoreError, which may be ErrOverloaded.
func (d *Directory) Where(ctx context.Context, actor string) (fence.TileID, error) {
	r, err := d.look(ctx, actor)
	return r.Place.Tile, err
}

// Connected reports whether a player has a session anywhere. Errors as those of Where.
func (d *Directory) Connected(ctx context.Context, actor string) (bool, error) {
	r, err := d.look(ctx, actor)
	return len(r.Holders) > 0, err
}

func (d *Directory) look(ctx context.Context, actor string) (directorystore.Record, error) {
	if err := directorystore.Validate(actor); err != nil {
		return directorystore.Record{}, err
	}
	all, err := d.store.Look(ctx, actor)
	if err != nil {
		return directorystore.Record{}, err
	}
	return all[0], nil
}

// Run renews leases, writes arrivals and takes messages until ctx ends. Then it gives its leases up, within 1 s, and
// returns nil. It runs once: fence.ErrAlreadyRun.
func (d *Directory) Run(ctx context.Context) error {
	if d.ran.Swap(true) {
		return fmt.Errorf("directory: %w", fence.ErrAlreadyRun)
	}
	var wg sync.WaitGroup
	wg.Go(func() { d.listen(ctx) })
	ticker := time.NewTicker(directorystore.TTL / 3)
	defer ticker.Stop()
	for ctx.Err() == nil {
		all := false
		select {
		case <-ctx.Done():
		case <-d.wake:
			wait.For(ctx, gather)
		case <-ticker.C:
			all = true
		}
		if ctx.Err() == nil {
			d.flush(ctx, all)
		}
	}
	wg.Wait()
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	d.place(last)
	d.mu.Lock()
	actors := slices.Collect(maps.Keys(d.here))
	d.mu.Unlock()
	d.leave(last, actors)
	return nil
}

// flush writes what is new, and renews all leases if all is set.
func (d *Directory) flush(ctx context.Context, all bool) {
	d.place(ctx)
	var stay, leave []string
	d.mu.Lock()
	for actor := range d.fresh {
		if d.here[actor] == nil {
			leave = append(leave, actor)
		} else if !all {
			stay = append(stay, actor)
		}
	}
	clear(d.fresh)
	if all {
		stay = slices.Collect(maps.Keys(d.here))
	}
	d.mu.Unlock()
	d.leave(ctx, leave)
	for batch := range slices.Chunk(stay, batchSize) {
		d.renew(ctx, batch)
	}
}

// renew renews leases, and does what the records say.
func (d *Directory) renew(ctx context.Context, actors []string) {
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	records, err := d.store.Renew(limited, d.name, actors...)
	d.failed("leases are not renewed", err)
	now := time.Now()
	for i, actor := range actors[:min(len(actors), len(records))] {
		r := &records[i]
		d.mu.Lock()
		l := d.here[actor]
		end := l != nil && r.EverEnded && now.Sub(l.since) >= r.Ended
		if l != nil && l.tile != 0 && l.tile != r.Place.Tile && len(d.moves) < mostMoves {
			if m := (Move{Actor: actor, To: l.tile, At: l.seen}); m.Newer(r.Place) {
				d.moves = append(d.moves, m)
				wait.Wake(d.wake)
			}
		}
		d.mu.Unlock()
		if end {
			d.end(actor)
		}
	}
}

// end ends the sessions that this process has of a player.
func (d *Directory) end(actor string) (sessions int) {
	if d.cfg.End == nil {
		return 0
	}
	d.mu.Lock()
	if l := d.here[actor]; l != nil {
		l.since = time.Now().Add(10 * time.Millisecond) // stores round; what begins from now on was not meant
	}
	d.mu.Unlock()
	sessions = d.cfg.End(actor)
	d.mu.Lock()
	d.stats.Ended += uint64(sessions) //nolint:gosec // a count
	d.mu.Unlock()
	return sessions
}

// place writes the moves that wait. What is not written waits for the next renewal, or until something is new.
func (d *Directory) place(ctx context.Context) {
	d.mu.Lock()
	moves := d.moves
	d.moves = nil
	d.mu.Unlock()
	for len(moves) > 0 {
		n := min(batchSize, len(moves))
		limited, cancel := context.WithTimeout(ctx, storeTimeout)
		err := d.store.Place(limited, moves[:n]...)
		cancel()
		if d.failed("where players are is not written", err) {
			d.mu.Lock()
			defer d.mu.Unlock()
			all := slices.Concat(moves[n:], d.moves, moves[:n]) // others first: one record may be the reason
			d.moves = all[max(0, len(all)-mostMoves):]
			d.stats.Dropped += uint64(len(all) - len(d.moves)) //nolint:gosec // not negative
			return
		}
		moves = moves[n:]
	}
}

// leave gives leases up. Those of which the store does not hear end by themselves.
func (d *Directory) leave(ctx context.Context, actors []string) {
	if len(actors) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	d.failed("leases are not given up", d.store.Leave(limited, d.name, actors...))
}

func (d *Directory) failed(what string, err error) bool {
	if err == nil {
		return false
	}
	d.mu.Lock()
	d.stats.Failed++
	d.mu.Unlock()
	d.cfg.Logger.Warn("directory: "+what, "error", err)
	return true
}
