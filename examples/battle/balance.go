package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/internal/faultline"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/tile"
)

// load is the tiles that a host serves.
type load struct {
	host  *host
	tiles []tile.Status
}

// balance hands a tile over every few seconds for as long as the tiles lie unevenly: after take-overs they pile
// up, since a host that comes back owns nothing. It waits while something is broken.
func (d *deployment) balance(ctx context.Context) error {
	for {
		if !wait.For(ctx, d.options.balanceEvery) {
			return nil
		}
		d.calm.Lock()
		if ctx.Err() == nil {
			d.even(context.WithoutCancel(ctx)) // a hand-over that has begun is finished
		}
		d.calm.Unlock()
	}
}

// loads are the living hosts and what each serves.
func (d *deployment) loads() []load {
	var all []load
	for _, h := range d.hosts.all() {
		if !h.line.Is(faultline.Flowing) {
			continue
		}
		l := load{host: h}
		for _, id := range d.world {
			if s := h.status(id); s.State == tile.Serving && d.hosts.owner(id) == h {
				l.tiles = append(l.tiles, s)
			}
		}
		all = append(all, l)
	}
	return all
}

// uneven names the host with the most tiles, if they are over one more than the average, and that with the fewest.
func uneven(all []load) (most, fewest load, ok bool) {
	if len(all) < 2 {
		return most, fewest, false
	}
	byCount := func(a, b load) int { return cmp.Compare(len(a.tiles), len(b.tiles)) }
	sum := 0
	for _, l := range all {
		sum += len(l.tiles)
	}
	most, fewest = slices.MaxFunc(all, byCount), slices.MinFunc(all, byCount)
	return most, fewest, (len(most.tiles)-1)*len(all) > sum
}

// even hands one tile over, if that makes the hosts more even and its successor follows it.
func (d *deployment) even(ctx context.Context) {
	most, fewest, ok := uneven(d.loads())
	if !ok {
		return
	}
	// In the coldest tile least happens, so the fewest players notice the hand-over.
	s := slices.MinFunc(most.tiles, func(a, b tile.Status) int { return cmp.Compare(a.Heat, b.Heat) })
	if f := fewest.host.status(s.Tile); f.State != tile.Following || !f.Owner.Present() {
		return // not warm yet
	}
	from, to := most.host, fewest.host
	d.meters.log.put(spectator.Event{Kind: spectator.KindNote, Tile: s.Tile, Owner: from.Contact(), Epoch: s.Epoch,
		Text: fmt.Sprintf("hand-over: %s has %s and gives this one to %s, which has %d", from.Contact(),
			count(len(most.tiles), "tile"), to.Contact(), len(fewest.tiles))})
	bounded, cancel := context.WithTimeout(ctx, handoverWithin+2*d.options.tick)
	defer cancel()
	if err := from.Host().Drain(bounded, s.Tile, to.Contact()); err != nil {
		d.logger.Warn("tile was not handed over", "tile", s.Tile, "to", to.Contact(), "error", err)
	}
}

// handoverWithin is how long a hand-over may take besides its ticks; a warm one takes milliseconds.
const handoverWithin = 5 * time.Second
