// Package denied says what the back ends of package match refuse, all in the same words.
package denied

import (
	"fmt"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
)

func of(reason error, format string, args ...any) error {
	return &match.DeniedError{Err: reason, What: fmt.Sprintf(format, args...)}
}

// Stale is a call under an epoch that has ended.
func Stale(shard string, e match.Epoch) error {
	return of(match.ErrStale, "shard %s: epoch %d", shard, e)
}

// Unknown is a ticket that the store does not have.
func Unknown(ticket string) error { return of(match.ErrUnknown, "ticket %s", ticket) }

// Reused is a ticket whose ID belongs to another one.
func Reused(ticket string) error { return of(match.ErrReused, "ticket %s", ticket) }

// Crowded is a ticket for which there is no room: source, if not empty, has too many of the shard's.
func Crowded(shard, source string, have, limit int) error {
	if source != "" {
		return of(match.ErrCrowded, "tickets of source %s: %d, the limit is %d now", source, have, limit)
	}
	return of(match.ErrCrowded, "tickets of shard %s: %d, the limit is %d", shard, have, limit)
}

// Gone is a match that cannot be recorded, since a ticket left the claim.
func Gone(id, ticket string) error { return of(match.ErrGone, "match %s: ticket %s", id, ticket) }

// Dissolved is a match that cannot be published.
func Dissolved(id string) error { return of(match.ErrGone, "match %s", id) }

// NoSeat is a match that no tile of a pool, or not the one that it names, has room for.
func NoSeat(pool string, o match.Order) error {
	seats, where := 0, "a tile of pool "+pool
	for _, party := range o.Tickets {
		seats += party.Seats
	}
	if o.Tile != 0 {
		where = "tile " + o.Tile.String()
	}
	return of(match.ErrNoSeat, "match %s: it needs %d on %s that serves", o.Match, seats, where)
}

// Lapsed is a seat that the ticket does not have any more.
func Lapsed(id, ticket string) error { return of(match.ErrLapsed, "match %s, ticket %s", id, ticket) }

// StaleOffer is an offer by a former owner of a tile.
func StaleOffer(tile fence.TileID, e, current fence.Epoch) error {
	return of(match.ErrStaleOffer, "tile %s: epoch %d, and epoch %d offers it", tile, e, current)
}
