package tilehost

import (
	"context"
	"errors"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/tile"
)

// turn waits for a promotion's turn; done reports it.
func (h *Host) turn(ctx context.Context, id fence.TileID, why tile.Suspicion, heat float64, class int) (done func(),
	err error) {
	asked := time.Now()
	leave, err := h.pacer.enter(ctx, class)
	if err != nil {
		return nil, err
	}
	h.mu.Lock()
	if t := h.tiles[id]; t != nil {
		t.yield = leave
	}
	h.mu.Unlock()
	began := time.Now()
	return func() {
		leave()
		hook.Call(h.cfg.Hooks.Promoted, PromotionInfo{Tile: id, Why: why, Heat: heat, Waited: began.Sub(asked),
			Took: time.Since(began)})
	}, nil
}

// pace is tile.Config.Pace of the host's followers.
func (h *Host) pace(ctx context.Context, s tile.Status, why tile.Suspicion) (done func(), err error) {
	if err := h.allow(s.Tile); err != nil {
		return nil, err
	}
	class := heatClass(s.Heat)
	if why == tile.HandedOver || why == tile.Ordered {
		class = urgentClass
	}
	return h.turn(ctx, s.Tile, why, s.Heat, class)
}

// refused is Hooks.Refused of the host's processors. A tile that is installed on its master, and waits for
// replicas, gives its turn away: it asks no store anything, and a shard whose replica is down must not keep the
// tiles of the others waiting.
func (h *Host) refused(i tile.RefusalInfo) {
	if errors.Is(i.Err, fence.ErrUnconfirmed) {
		h.mu.Lock()
		var yield func()
		if t := h.tiles[i.Tile]; t != nil {
			yield, t.yield = t.yield, nil
		}
		h.mu.Unlock()
		if yield != nil {
			yield()
		}
	}
	hook.Call(h.cfg.Tile.Hooks.Refused, i)
}

// transition is Hooks.Transition of the host's processors.
func (h *Host) transition(i tile.TransitionInfo) {
	h.mu.Lock()
	t := h.tiles[i.Tile]
	if t != nil {
		switch {
		case i.To == tile.Serving:
			t.wanted = 0 // it has what it wanted, or has not ended after all
		case i.To == tile.Following && i.From != tile.Idle:
			t.failed++
		}
		t.notify()
	}
	h.mu.Unlock()
	if i.To == tile.Serving {
		if t != nil {
			t.finishPromotion()
		}
		hook.Call(h.cfg.Announce, fence.Owner{Tile: i.Tile, Epoch: i.Epoch, Contact: h.contact})
	}
	hook.Call(h.cfg.Tile.Hooks.Transition, i)
}

// tell announces what the end of a processor says about the tile's owner.
func (h *Host) tell(end *EndInfo) {
	s := &end.Status
	o := fence.Owner{Tile: s.Tile, Epoch: s.Epoch}
	sup, superseded := errors.AsType[*tile.SupersededError](end.Err)
	lost, claimLost := errors.AsType[*fence.LostError](end.Err)
	held, quarantined := errors.AsType[*tile.QuarantinedError](end.Err)
	switch {
	case superseded:
		o.Epoch, o.Contact = sup.Successor.Epoch, sup.Successor.Contact
	case claimLost:
		o.Epoch, o.Contact = lost.Current.Epoch, lost.Current.Contact
	case quarantined && held.Quarantine.By == h.contact:
		o.Epoch, o.Contact = held.Epoch, h.contact // where clients learn why nothing happens
	case s.Successor.Present(): // handed over
		o.Epoch, o.Contact = s.Successor.Epoch, s.Successor.Contact
	}
	if o.Epoch > 0 {
		hook.Call(h.cfg.Announce, o)
	}
}
