package spawn

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/address"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream/share"
)

// The list of the tiles that need an owner is one of share.Members. Checkpoint servers, which find such tiles, put them
// on it; tile servers that begin tiles are on it too, divide the tiles among them, and begin them.
const (
	// AsleepGroup is the name of the list.
	AsleepGroup = "asleep"

	asleepTTL   = 15 * time.Second // how long a name is on the list that is not entered again
	asleepEvery = 5 * time.Second  // how often a tile server reads it
	mostAsleep  = 512              // names on it: a longer list is another program's work, or has to get shorter first
	mostWoken   = 32               // tiles that a server begins after it has read it once
	wakers      = 8                // at a time

	tilePrefix, serverPrefix = "tile-", "server-"
)

// Caller returns what puts tiles on the list: checkpoint.Config.Wake. What does not fit, or fails, is for the next
// call: the tiles are found again.
func Caller(list share.Members, log *slog.Logger) func(context.Context, []fence.TileID) {
	remind := sampled.Reminder(log)
	return func(ctx context.Context, tiles []fence.TileID) {
		for _, id := range tiles {
			names, _, err := list.Beat(ctx, AsleepGroup, tilePrefix+id.String(), asleepTTL)
			if err != nil {
				remind.Warn("tiles that need an owner are not listed for tile servers", "tile", id, "error", err)
			}
			if err != nil || len(names) >= mostAsleep {
				return
			}
		}
	}
}

// Waker begins tiles that are on the list. Set all fields but the last before use.
type Waker struct {
	List      share.Members
	Spawner   *Spawner
	Authority fence.Authority
	Logger    *slog.Logger

	rounds map[fence.TileID]int // how often each tile on the list was found there in a row
}

// Run reads the list until ctx ends, and returns nil.
func (w *Waker) Run(ctx context.Context) error {
	w.rounds = map[fence.TileID]int{}
	remind := sampled.Reminder(w.Logger)
	for wait.For(ctx, asleepEvery) {
		if err := w.once(ctx); err != nil && ctx.Err() == nil {
			remind.Warn("not known which tiles need an owner: the list is not reached", "error", err)
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = w.List.Leave(ctx, AsleepGroup, serverPrefix+w.Spawner.Contact) // it ends by itself
	return nil
}

// once reads the list and begins the tiles that are this server's.
func (w *Waker) once(ctx context.Context) error {
	call, cancel := context.WithTimeout(ctx, asleepEvery)
	names, _, err := w.List.Beat(call, AsleepGroup, serverPrefix+w.Spawner.Contact, asleepTTL)
	cancel()
	if err != nil {
		return err
	}
	var turns []fence.TileID
	for _, id := range w.turns(names) {
		if len(turns) < mostWoken && w.mayBegin(ctx, id) {
			turns = append(turns, id)
		}
	}
	var begun sync.WaitGroup
	slots := make(chan struct{}, wakers)
	for _, id := range turns {
		slots <- struct{}{}
		begun.Go(func() {
			w.begin(ctx, id)
			<-slots
		})
	}
	begun.Wait()
	return nil
}

// turns are the tiles of a list whose turn is this server's. Each has the servers in an order of its own, and is the
// next one's if those before have had their turn and it is still on the list: they are full, or dead. After a turn that
// did not help a server waits for twice as many rounds before the next one, up to sixteen.
func (w *Waker) turns(names []string) (turns []fence.TileID) {
	var servers []string
	rounds := map[fence.TileID]int{}
	for _, name := range names[:min(len(names), 2*mostAsleep)] {
		var id fence.TileID
		if contact, is := strings.CutPrefix(name, serverPrefix); is {
			servers = append(servers, contact)
		} else if text, is := strings.CutPrefix(name, tilePrefix); is && id.UnmarshalText([]byte(text)) == nil {
			rounds[id] = w.rounds[id] + 1
		}
	}
	w.rounds = rounds
	for id, n := range rounds {
		n -= slices.Index(address.Preferred(id, servers), w.Spawner.Contact)
		if n > 0 && (n&(n-1) == 0 || n%16 == 0) {
			turns = append(turns, id)
		}
	}
	slices.Sort(turns)
	return turns
}

// mayBegin reports whether a tile is none that an operator has to decide about.
func (w *Waker) mayBegin(ctx context.Context, id fence.TileID) bool {
	call, cancel := context.WithTimeout(ctx, asleepEvery)
	defer cancel()
	g, err := w.Authority.Lookup(call, id)
	if err != nil {
		return errors.Is(err, fence.ErrNeverOwned)
	}
	q, set := fence.ParseQuarantine(g.Contact)
	return !set || q.Lifted
}

func (w *Waker) begin(ctx context.Context, id fence.TileID) {
	if err := w.Spawner.Begin(ctx, id); err != nil {
		w.Logger.Debug("tile that needs an owner is not begun here", "tile", id, "error", err)
		return
	}
	call, cancel := context.WithTimeout(ctx, asleepEvery)
	defer cancel()
	_ = w.List.Leave(call, AsleepGroup, tilePrefix+id.String()) // it ends by itself
}
