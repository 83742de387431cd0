// Package matchhttp serves tickets of package match to players, over HTTP and WebSocket: a player asks for a match,
// follows the ticket, and learns the seat.
//
//	handler, err := matchhttp.New(lobby, "ranked-eu", keys.Authenticate, &matchhttp.Config{Rate: rate})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/lobby/", http.StripPrefix("/lobby", handler))
//
// The gateway takes a player's seats with Enter, and Config.Leave gives them back. docs/wire.md has the messages for
// those who write a client.
//
// # Requests
//
// Every request has a player's token, which the AuthenticateFunc reads (package session):
//
//	PUT    /tickets/ID        asks for a match: {"rating":1500}, or {"rating":1500,"friends":["<token>"]}
//	GET    /tickets/ID        the ticket; as a WebSocket, the ticket now and after each change
//	DELETE /tickets/ID        cancels the ticket, whatever its state; with Config.Leave, its seats go back
//	POST   /tickets/ID/leave  the ticket's players have left their seats; only with Config.Leave
//
// The client chooses the ID of a ticket, at random, and repeats a PUT with the same ID and body until it is answered:
// that is the same ticket. The answer to each of them is a Ticket as JSON.
//
// # Failures
//
//	status  meaning
//	400     an argument is wrong; the text says which
//	401     no valid token
//	404     there is no such ticket of this player: others' tickets look the same
//	409     the ID was used for another ticket, or the player has an open ticket: Location says which
//	410     the ticket has no seat to leave
//	429     the queue has no room, the ticket too many followers, or the address or the player too many connections
//	503     the store did not answer: the outcome may be unknown, so repeat the request with the same ID; or
//	        Config.MaxClients are served, or the authentication took too long
//
// 429 and 503 have a Retry-After. A WebSocket is closed with status 1000 after a terminal state, with 1013 if a newer
// connection of the ticket's players took its place, or another player needs the place more, and with 4003 when the
// player's identity expires.
//
// # What it promises, and what it does not
//
// A ticket is shown to its players alone, and cancelled by them alone. A party is made of players who gave their tokens
// to the one who asks: Config.Friend checks them. Requests from pages of another origin are refused. A body is read to
// 16 KiB. Connections are bounded as those of relays and gateways are (Config.Sessions, Config.MaxClients), and a
// client that is silent for 40 s, pings included, is cut. Followers are bounded by match.Lobby, tickets by match.Queue:
// the address of the client, of IPv6 the /64, is Ticket.Source.
//
// A Handler holds no state but its connections. Any number of processes may serve the same queue.
package matchhttp
