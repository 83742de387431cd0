package health

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/sampled"
	"github.com/tilefence/tilefence/internal/wait"
)

// Times of the comparison of worlds.
const (
	worldTimeout = 2 * time.Second // for one look at a back end
	worldRetry   = time.Second     // after one that failed
	worldAgain   = time.Minute     // after one that succeeded
)

// anotherWorld is what Health says of a back end whose record has changed.
const anotherWorld = "a back end has become that of another world: its servers were emptied and given to it, " +
	"or exchanged"

// Worlds keeps a server from working with the back ends of another world. The first answer of each back end decides
// whether the server may run; a later one only makes a problem, since a server that holds tiles must not end because a
// store lost its record, and another process was faster to write one.
type Worlds struct {
	authority fence.Authority // nil: the first back end that has a record says which world it is
	backends  []entered
	log       *slog.Logger
	wrong     atomic.Pointer[string]
}

// entered is a back end that keeps a world.
type entered struct {
	fence.WorldKeeper
	vital bool // the server does not begin before it has answered
	once  bool // it has answered
}

// NewWorlds is for a server that does not begin before the vital back ends have answered.
func NewWorlds(authority fence.Authority, log *slog.Logger, vital, others []any) *Worlds {
	w := &Worlds{authority: authority, log: sampled.Reminder(log)}
	for i, b := range append(vital[:len(vital):len(vital)], others...) {
		if k, ok := b.(fence.WorldKeeper); ok {
			w.backends = append(w.backends, entered{WorldKeeper: k, vital: i < len(vital)})
		}
	}
	return w
}

// own is the world of the process: that of its authority, or that which a back end has recorded.
func (w *Worlds) own(ctx context.Context) (fence.World, error) {
	if w.authority != nil {
		ctx, cancel := context.WithTimeout(ctx, worldTimeout)
		defer cancel()
		return w.authority.World(ctx)
	}
	for _, found := range w.ask(ctx, fence.World{}) {
		if found.err == nil && !found.world.ID.IsZero() {
			return found.world, nil
		}
	}
	return fence.World{}, nil
}

// worldAnswer is what a back end says when it is entered.
type worldAnswer struct {
	world fence.World
	err   error
}

// ask enters all back ends at the same time: one that hangs uses up the time of no other.
func (w *Worlds) ask(ctx context.Context, as fence.World) []worldAnswer {
	ctx, cancel := context.WithTimeout(ctx, worldTimeout)
	defer cancel()
	answers := make([]worldAnswer, len(w.backends))
	var asked sync.WaitGroup
	for i, b := range w.backends {
		asked.Go(func() { answers[i].world, answers[i].err = b.EnterWorld(ctx, as) })
	}
	asked.Wait()
	return answers
}

// look asks the authority, and then every back end once. begin reports whether all vital ones
// have answered, now or before. The error is a *fence.WorldError of one that has not answered before.
func (w *Worlds) look(ctx context.Context) (begin, all bool, err error) {
	own, err := w.own(ctx)
	answers := slices.Repeat([]worldAnswer{{err: err}}, len(w.backends))
	if err == nil {
		answers = w.ask(ctx, own)
	}
	begin, all = true, true
	var wrong []error
	for i := range w.backends {
		b, failed := &w.backends[i], answers[i].err
		foreign := errors.Is(failed, fence.ErrWorld)
		switch {
		case failed == nil:
			b.once = true
		case foreign && b.once:
			wrong = append(wrong, failed)
		case foreign:
			return false, false, failed
		case !b.once:
			begin, all = begin && !b.vital, false
			w.log.Warn("not known yet whether a back end is that of another world", "error", failed)
		}
	}
	w.say(errors.Join(wrong...))
	return begin, all, nil
}

func (w *Worlds) say(wrong error) {
	if wrong == nil {
		w.wrong.Store(nil)
		return
	}
	text := wrong.Error()
	w.wrong.Store(&text)
}

// Enter looks until every vital back end has answered once, or ctx ends. The error is a *fence.WorldError.
func (w *Worlds) Enter(ctx context.Context) error {
	for ctx.Err() == nil {
		if begin, _, err := w.look(ctx); begin || err != nil {
			return err
		}
		wait.For(ctx, worldRetry)
	}
	return nil
}

// First looks once, before a server that waits for no back end serves. The error is a *fence.WorldError.
func (w *Worlds) First(ctx context.Context) error {
	_, _, err := w.look(ctx)
	return err
}

// Watch goes on looking until ctx ends. It fails if a back end answers for the first time, and is that of another
// world.
func (w *Worlds) Watch(ctx context.Context) error {
	for pause := worldRetry; wait.For(ctx, pause); {
		_, all, err := w.look(ctx)
		if err != nil && ctx.Err() == nil {
			return err
		}
		if pause = worldRetry; all {
			pause = worldAgain
		}
	}
	return nil
}

// Add adds what was wrong at the last look.
func (w *Worlds) Add(all *Problems) {
	if wrong := w.wrong.Load(); wrong != nil {
		all.Add("settings", anotherWorld, 0, time.Minute)
		all.Detail(anotherWorld, *wrong)
	}
}
