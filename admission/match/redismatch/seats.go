package redismatch

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/internal/denied"
	"github.com/tilefence/tilefence/fence"
)

// poolBase begins every key of a pool of seats. It is part of the wire contract.
func poolBase(pool string) string { return "{seats:" + pool + "}" }

// Offer implements match.Seats.
func (s *store) Offer(ctx context.Context, pool string, o match.Offer, ttl time.Duration) (match.Load, error) {
	if err := match.CheckOffer(o, ttl); err != nil {
		return match.Load{}, err
	}
	info, err := json.Marshal(o.Info)
	if err != nil {
		return match.Load{}, err
	}
	code, reply, err := s.call(ctx, "offer", poolBase(pool), o.Tile.String(), uint64(o.Epoch), o.Contact, info, o.Seats,
		millis(ttl))
	if code == "stale" {
		return match.Load{}, denied.StaleOffer(o.Tile, o.Epoch, fence.Epoch(fields(reply).number(0)))
	}
	if err != nil {
		return match.Load{}, err
	}
	return match.Load{Offer: o, Used: int(fields(reply).number(0)), Serving: true}, nil
}

// Withdraw implements match.Seats.
func (s *store) Withdraw(ctx context.Context, pool string, tile fence.TileID, e fence.Epoch) error {
	code, reply, err := s.call(ctx, "withdraw", poolBase(pool), tile.String(), uint64(e))
	if code == "stale" {
		return denied.StaleOffer(tile, e, fence.Epoch(fields(reply).number(0)))
	}
	return err
}

// Allocate implements match.Seats.
func (s *store) Allocate(
	ctx context.Context, pool string, orders []match.Order, hold time.Duration,
) ([]match.Allocation, error) {
	if err := match.CheckOrders(orders, hold); err != nil {
		return nil, err
	}
	args := append(make([]any, 0, 1+4*len(orders)), millis(hold))
	for _, o := range orders {
		tile := ""
		if o.Tile != 0 {
			tile = o.Tile.String()
		}
		var parties strings.Builder
		for _, p := range o.Tickets {
			fmt.Fprintf(&parties, "%s %d ", p.Ticket, p.Seats)
		}
		args = append(args, o.Match, o.Shard, tile, parties.String())
	}
	_, reply, err := s.call(ctx, "allocate", poolBase(pool), args...)
	if err != nil {
		return nil, err
	}
	if len(reply) != len(orders) {
		return nil, failed("allocate", fmt.Errorf("%d answers for %d orders", len(reply), len(orders)))
	}
	answers := make([]match.Allocation, len(orders))
	for i, o := range orders {
		list, placed := reply[i].([]any)
		if !placed {
			answers[i].Err = denied.NoSeat(pool, o)
			continue
		}
		if answers[i].Assignment, err = assignment(o.Match, list); err != nil {
			return nil, err
		}
	}
	return answers, nil
}

// assignment reads tile, epoch, contact, info and the end of the hold, then tickets and their seats.
func assignment(id string, f fields) (match.Assignment, error) {
	tile, err := fence.ParseTileID(f.text(0))
	if err != nil {
		return match.Assignment{}, &fence.CorruptError{What: "seats of match " + id, Detail: err.Error()}
	}
	a := match.Assignment{Match: id, Tile: tile, Epoch: fence.Epoch(f.number(1)), Contact: f.text(2),
		Seats: make(map[string][]int), TakeBy: f.millis(4)}
	if err := decode(f.text(3), &a.Info); err != nil {
		return match.Assignment{}, err
	}
	for i := 5; i+1 < len(f); i += 2 {
		for seat := range strings.SplitSeq(f.text(i+1), ",") {
			n, err := strconv.Atoi(seat)
			if err != nil {
				return match.Assignment{}, &fence.CorruptError{What: "seats of match " + id, Detail: err.Error()}
			}
			a.Seats[f.text(i)] = append(a.Seats[f.text(i)], n)
		}
	}
	return a, nil
}

// Take implements match.Seats.
func (s *store) Take(ctx context.Context, pool, id, ticket string) error {
	code, _, err := s.call(ctx, "take", poolBase(pool), id, ticket)
	if code == "lapsed" {
		return denied.Lapsed(id, ticket)
	}
	return err
}

// Free implements match.Seats.
func (s *store) Free(ctx context.Context, pool, id, ticket string) error {
	_, _, err := s.call(ctx, "free", poolBase(pool), id, ticket)
	return err
}

// Lapsed implements match.Seats.
func (s *store) Lapsed(ctx context.Context, pool string, limit int) ([]match.Lapse, error) {
	_, reply, err := s.call(ctx, "lapsed", poolBase(pool), limit)
	var lapses []match.Lapse
	for f := fields(reply); len(f) >= 3; f = f[3:] {
		lapses = append(lapses, match.Lapse{Shard: f.text(0), Match: f.text(1), Ticket: f.text(2)})
	}
	return lapses, err
}

// Settled implements match.Seats.
func (s *store) Settled(ctx context.Context, pool string, settled []match.Lapse) error {
	var args []any
	for _, l := range settled {
		args = append(args, l.Match, l.Ticket)
	}
	_, _, err := s.call(ctx, "settled", poolBase(pool), args...)
	return err
}

// Tiles implements match.Seats.
func (s *store) Tiles(ctx context.Context, pool string) ([]match.Load, error) {
	_, reply, err := s.call(ctx, "tiles", poolBase(pool))
	var list []match.Load
	for f := fields(reply); len(f) >= 7; f = f[7:] {
		tile, err := fence.ParseTileID(f.text(0))
		if err != nil {
			return nil, &fence.CorruptError{What: "tile of pool " + pool, Detail: err.Error()}
		}
		l := match.Load{Offer: match.Offer{Tile: tile, Epoch: fence.Epoch(f.number(1)), Contact: f.text(2),
			Seats: int(f.number(4))}, Used: int(f.number(5)), Serving: f.text(6) == "1"}
		if err := decode(f.text(3), &l.Info); err != nil {
			return nil, err
		}
		list = append(list, l)
	}
	return list, err
}
