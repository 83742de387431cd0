package chaos

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
)

// choose picks what a fault breaks.
type choose = func(ctx context.Context, r *Runner) (*Injection, error)

// processFaults are those that need no server to break: they hit processes of the deployment and what connects them.
func processFaults() []Fault {
	return []Fault{
		// The host comes back with nothing, as a supervisor starts it, once others have had the time to take its tiles.
		{faultinject.OwnerKilled, onOwner(func(r *Runner, _ fence.TileID, h Host) Injection {
			return Injection{Tiles: r.served(h), Lasts: patience, UntilWell: true, Inject: Always(func() { r.Kill(h) }),
				Repair: func(context.Context) error { return r.Restart(h) }}
		})},
		{faultinject.OwnerPaused, onOwner(func(r *Runner, _ fence.TileID, h Host) Injection {
			lasts := r.between(r.SuspectAfter/2, 3*r.SuspectAfter)
			return broken(h.Line(), faultinject.Paused, lasts, r.served(h))
		})},
		{faultinject.OwnerCutOff, onOwner(func(r *Runner, _ fence.TileID, h Host) Injection { return r.cutOff(h) })},
		{faultinject.RivalTakeOver, onOwner(func(r *Runner, id fence.TileID, _ Host) Injection {
			return Injection{Tiles: []fence.TileID{id}, Lasts: patience, UntilWell: true,
				Inject: func(ctx context.Context) error { return r.TakeOver(ctx, id) }}
		})},
		{faultinject.RepliesLost, onOwner(func(r *Runner, _ fence.TileID, h Host) Injection {
			return broken(h.Line(), faultinject.Deaf, max(time.Second, 3*r.Tick), r.served(h))
		})},
		{faultinject.OwnerHashDeleted, on(Coordination, func(r *Runner) Injection {
			id := r.Tiles[r.rng.IntN(len(r.Tiles))]
			return Injection{Tiles: []fence.TileID{id},
				Inject: func(ctx context.Context) error { return r.DeleteOwner(ctx, id) }}
		})},
		{faultinject.StoreUnreachable, on(Coordination, func(r *Runner) Injection {
			return broken(r.Store, faultinject.Cut, r.between(time.Second, 2*time.Second), r.Tiles)
		})},
		{faultinject.BridgeStopped, on(Bridge, func(r *Runner) Injection {
			return broken(r.Target.Bridge, faultinject.Paused, r.between(time.Second, 3*time.Second), nil)
		})},
		{faultinject.WatchersCutOff, on(Relay, func(r *Runner) Injection {
			return Injection{Inject: Always(r.Watchers.Cut)}
		})},
		{faultinject.PlayersCutOff, on(Gateway, func(r *Runner) Injection {
			return Injection{Inject: Always(r.Players.Cut)}
		})},
		viewerStorm(),
	}
}

// loseTiles is faultinject.CoordinationLost without servers.
var loseTiles = on(Coordination, func(r *Runner) Injection {
	return Injection{Tiles: r.Tiles, Inject: Always(func() {
		for _, id := range r.Tiles {
			r.LoseTile(id)
		}
	})}
})

// cutOff parts a host that lives from the stores, the authority and the other members until others serve its tiles. It
// is over when the host is back and has learnt that they are not its own: meanwhile it may commit nothing to them.
func (r *Runner) cutOff(h Host) Injection {
	tiles := r.served(h)
	held := map[fence.TileID]fence.Epoch{}
	for _, id := range tiles {
		held[id], _ = h.Serves(id)
	}
	return Injection{Tiles: tiles, Lasts: patience, UntilWell: true, Fenced: true,
		Inject: Always(func() {
			h.Line().Set(faultinject.Cut)
			h.Part()
		}),
		Repair: func(ctx context.Context) error {
			h.Line().Set(faultinject.Flowing)
			if err := h.Rejoin(); err != nil {
				return err
			}
			return Until(ctx, "a host that was cut off knows what it has lost", func() bool {
				return !slices.ContainsFunc(tiles, func(id fence.TileID) bool {
					epoch, serves := h.Serves(id)
					// A deployment that ends before others have taken a tile leaves it to its owner.
					return serves && epoch == held[id] && r.Tracker.takenAfter(id, held[id])
				})
			})
		}}
}

// onOwner breaks the host that serves some tile.
func onOwner(injection func(*Runner, fence.TileID, Host) Injection) choose {
	return func(_ context.Context, r *Runner) (*Injection, error) {
		i := r.rng.IntN(len(r.Tiles)) // chosen by number: the same seed finds the same tile
		for range r.Tiles {
			if h := r.Owner(r.Tiles[i]); h != nil {
				s := injection(r, r.Tiles[i], h)
				s.Host = h
				return &s, nil
			}
			i = (i + 1) % len(r.Tiles)
		}
		return nil, ErrNotNow
	}
}

// on breaks a system. Behind the coordination store it is clients that suffer.
func on(system string, injection func(*Runner) Injection) choose {
	return func(_ context.Context, r *Runner) (*Injection, error) {
		s := injection(r)
		if s.System = system; system != Coordination {
			s.Tiles, s.Delivery = r.watched(), true
		}
		return &s, nil
	}
}

// broken is a line that is in another state for a while.
func broken(l *faultinject.Line, state faultinject.State, lasts time.Duration, tiles []fence.TileID) Injection {
	return Injection{Tiles: tiles, Lasts: lasts,
		Inject: Always(func() { l.Set(state) }), Repair: Always(func() { l.Set(faultinject.Flowing) })}
}
