// Package agonesmatch gives matches game servers of Agones: each match gets a game server of its own, through the API
// server of Kubernetes. It needs no library of Kubernetes.
//
//	allocator, err := agonesmatch.New(map[string]string{"agones.dev/fleet": "battles"}, place, nil)
//	if err != nil {
//		return err
//	}
//
// A match server takes it as its Allocator. place is the game's: it says which tile a match plays on, and what its
// players are told of the game server.
//
// # Life of a game server
//
//	Ready -Allocate-> Allocated, with the match -Shutdown of the SDK-> gone
//	                      |
//	                      +-Release, of a match that was dissolved-> deleted
//
// An allocated game server has the label LabelMatch and the annotation AnnotationMatch, the match as JSON. It reads
// them through the SDK of Agones (WatchGameServer), serves the tile of place, and lets in the players of the match
// alone: a seated ticket's token names its ticket (matchhttp.Config.Token). The game server ends itself when the
// battle is over, and when no player has come by Config.Hold: nothing else does.
//
// # What it promises, and what it does not
//
//   - A match that has a game server gets that one again, as long as it is Allocated: each request first asks for a
//     game server with the match's label, then for one that is Ready.
//   - Two that ask for a match at the same moment, or one that asks again before Agones' cache has the first answer,
//     may get one game server each. The match store publishes one of the two, so that all players of the match are
//     told the same; the other game server has no players, and ends itself.
//   - Seats do not lapse. The ticket of a player who does not come stays Seated, and the player may ask for another
//     match after Config.Hold.
//   - A match that a running battle asked for (match.Ticket.Backfill) finds no seat: Agones does not know how many
//     players a game server has.
//
// # Failures
//
//	what fails                         error                     what the match does
//	no game server is Ready            match.ErrNoSeat           it is dissolved, and its tickets wait
//	others took the game servers       ErrContention             it asks again
//	the API server refuses             *StatusError              it asks again; for two minutes, then it is dissolved
//	the API server does not answer     context.DeadlineExceeded  likewise
//	the answer makes no sense          ErrAnswer                 likewise
//
// The service account needs two verbs: create of gameserverallocations.allocation.agones.dev, and deletecollection of
// gameservers.agones.dev. Agones must select game servers by their state, as each release since 1.41 does without a
// feature gate.
package agonesmatch
