package matchhttp

import (
	"context"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/relay/session"
)

// Enter returns a function that takes a player's seats, as gatewayws.Config.Enter: the player comes with an identity
// whose Value is the ID of a ticket, a string, as the token of Config.Token says. The function's errors are
// match.ErrUnknown if there is no such ticket of this player, match.ErrLapsed if the ticket has no seats, and those of
// the lobby.
func Enter(
	lobby Lobby, queue string, seats *match.SeatAllocator,
) func(ctx context.Context, who session.Identity) error {
	return func(ctx context.Context, who session.Identity) error {
		ticket, _ := who.Value.(string)
		if ticket == "" {
			return &match.DeniedError{Err: match.ErrUnknown, What: "the ticket of " + who.Actor + ", who names none"}
		}
		s, err := own(ctx, lobby, queue, ticket, who.Actor)
		if err != nil {
			return err
		}
		return seats.Take(ctx, s)
	}
}
