package match

import (
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
)

// The checks that every back end makes of its arguments before it writes anything. Each returns nil or a
// *fence.ArgumentError.

// CheckEntry checks an Entry and returns it with its defaults.
func CheckEntry(e Entry) (Entry, error) {
	var check setting.Check
	check.From(time.Millisecond, "MaxWait", &e.MaxWait, defaultWait)
	check.Number("Room", &e.Room, defaultRoom)
	check.Number("PerSource", &e.PerSource, defaultPerSource)
	return e, check.Err
}

// CheckClaim checks a Claim.
func CheckClaim(c Claim) error {
	switch {
	case !nameForm.MatchString(c.Worker):
		return &fence.ArgumentError{Field: "Worker", Value: c.Worker, Want: nameWant}
	case c.Lease < time.Millisecond:
		return &fence.ArgumentError{Field: "Lease", Value: c.Lease, Want: "at least 1ms"}
	case c.Limit < 1 || c.Limit > MaxClaim:
		return &fence.ArgumentError{Field: "Limit", Value: c.Limit, Want: fmt.Sprint("1 to ", MaxClaim)}
	}
	return nil
}

// CheckRecord checks the matches of a Record: each has an ID and at least one ticket, and no ticket and no player is in
// two.
func CheckRecord(matches []Match) error {
	seen, players := make(map[string]bool), make(map[string]bool)
	for _, m := range matches {
		if !nameForm.MatchString(m.ID) {
			return &fence.ArgumentError{Field: "Match.ID", Value: m.ID, Want: nameWant}
		}
		if len(m.Tickets) == 0 {
			return &fence.ArgumentError{Field: "Match.Tickets", Value: 0, Want: "at least one ticket"}
		}
		for _, t := range m.Tickets {
			if seen[t.ID] {
				return &fence.ArgumentError{Field: "Match.Tickets", Value: t.ID, Want: "each ticket once"}
			}
			seen[t.ID] = true
			for _, p := range t.Players {
				if players[p.ID] {
					return &fence.ArgumentError{Field: "Match.Tickets", Value: p.ID, Want: "each player once"}
				}
				players[p.ID] = true
			}
		}
	}
	if len(seen) > MaxClaim {
		return &fence.ArgumentError{Field: "matches", Value: len(seen),
			Want: fmt.Sprint("at most ", MaxClaim, " tickets")}
	}
	return nil
}

// CheckOffer checks an Offer.
func CheckOffer(o Offer, ttl time.Duration) error {
	switch {
	case o.Tile == 0:
		return &fence.ArgumentError{Field: "Offer.Tile", Value: o.Tile, Want: "an H3 index, not zero"}
	case o.Epoch < 1 || o.Epoch > 1<<53-1:
		return &fence.ArgumentError{Field: "Offer.Epoch", Value: o.Epoch, Want: "from 1 to 2^53-1"}
	case !fence.IsName(o.Contact, fence.MaxContact):
		return &fence.ArgumentError{Field: "Offer.Contact", Value: o.Contact, Want: "a contact of 1 to 255 bytes"}
	case o.Seats < 1 || o.Seats > MaxSeats:
		return &fence.ArgumentError{Field: "Offer.Seats", Value: o.Seats, Want: fmt.Sprint("1 to ", MaxSeats)}
	case ttl < time.Millisecond:
		return &fence.ArgumentError{Field: "ttl", Value: ttl, Want: "at least 1ms"}
	}
	return nil
}

// CheckOrders checks the orders of an Allocate.
func CheckOrders(orders []Order, hold time.Duration) error {
	if hold < time.Millisecond || hold > MaxHold {
		return &fence.ArgumentError{Field: "hold", Value: hold, Want: "1ms to 30m"}
	}
	for _, o := range orders {
		if !nameForm.MatchString(o.Match) {
			return &fence.ArgumentError{Field: "Order.Match", Value: o.Match, Want: nameWant}
		}
		if len(o.Tickets) < 1 || len(o.Tickets) > MaxPlayers {
			return &fence.ArgumentError{Field: "Order.Tickets", Value: len(o.Tickets),
				Want: fmt.Sprint("1 to ", MaxPlayers)}
		}
		for _, p := range o.Tickets {
			if p.Seats < 1 || p.Seats > MaxPlayers || !nameForm.MatchString(p.Ticket) {
				return &fence.ArgumentError{Field: "Order.Tickets", Value: p,
					Want: fmt.Sprint("1 to ", MaxPlayers, " seats")}
			}
		}
	}
	return nil
}
