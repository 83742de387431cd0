package simulation

import (
	"context"
	"slices"
	"time"

	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// present is an owner's way to its neighbours: any process that takes itself for the owner may get it, also more than
// once, and the answer of a call that was given up is lost.
func (w *world) present(ctx context.Context, from *host, p *tile.Presentation) (tile.Answer, error) {
	living := slices.DeleteFunc(w.living(p.To), func(c *claimant) bool { return c.Status().State == tile.Following })
	if len(living) == 0 {
		return tile.Answer{}, errNoAnswer
	}
	to := living[len(living)-1]
	if from.intN("present", 4) == 0 {
		to = living[from.intN("present", len(living))]
	}
	fate := from.fate("present")
	if fate == isLost || from.travel(ctx, "present") != nil || to.host.awake() != nil {
		return tile.Answer{}, errNoAnswer
	}
	if from.intN("present", 8) == 0 { // it comes again, later
		again := *p
		w.running.Go(func() {
			late, cancel := context.WithTimeout(context.Background(), maxDelay)
			defer cancel()
			_ = sleep(late, time.Duration(from.intN("late", int(maxDelay))))
			if to.host.awake() == nil {
				_, _ = to.Present(late, again) // nobody waits for the answer
			}
		})
	}
	a, err := to.Present(ctx, *p)
	if to.host.awake() != nil || from.awake() != nil || fate != arrives {
		return tile.Answer{}, errNoAnswer
	}
	return a, err
}

// census requires that each traveller is in one tile, and that no coin is lost or made. Nothing is under way any more:
// all have had time to arrive.
func (w *world) census() {
	h := newHost(w.net, "census", w.seed)
	h.route, _ = w.cluster.masterNow()
	places, coins, born := map[string]int{}, 0, 0
	for _, id := range w.tiles {
		r, err := stream.Recover(context.Background(), w.seams(h).Log, id)
		var state game.Register
		if err == nil {
			err = state.Recover(&r)
		}
		if err != nil {
			w.fail(id, "its travellers cannot be counted: %v", err)
		}
		for name, n := range state.Travellers() {
			places[name]++
			coins += n
		}
		if c := w.server(id); c != nil && c.Status().UnderWay > 0 {
			w.fail(id, "%d travellers are under way at the end", c.Status().UnderWay)
		}
	}
	for _, id := range w.tiles {
		for _, name := range game.TravelAmong(w.tiles, id, game.Few).Born {
			if places[name] != 1 {
				w.fail(id, "traveller %s is in %d tiles", name, places[name])
			}
			delete(places, name)
			born += game.Coins
		}
	}
	if coins != born {
		w.fail(w.tiles[0], "travellers have %d coins, and were born with %d", coins, born)
	}
	for name, n := range places {
		w.fail(w.tiles[0], "traveller %s was never born, and is in %d tiles", name, n)
	}
}

// crossed counts departures.
func (w *world) crossed(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Crossings += n
}
