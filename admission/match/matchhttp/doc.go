// Package matchhttp serves tickets of package match to players, over HTTP and WebSocket: a player asks for a match,
// follows the ticket, and learns the seat.
//
//	handler, err := matchhttp.New(lobby, "ranked-eu", keys.Authenticate, &matchhttp.Config{Rate: rate})
//	if err != nil {
//		return err
//	}
//	mux.Handle("/lobby/", http.StripPrefix("/lobby", handler))
//
// # Requests
//
// Every request has a player's token, which the AuthenticateFunc reads (package session):
//
//	PUT    /tickets/ID        asks for a match: {"rating":1500}, or {"rating":1500,"friends":["<token>"]}
//	GET    /tickets/ID        the ticket; as a WebSocket, the ticket now and after each change
//	DELETE /tickets/ID        cancels the ticket, whatever its state
//	POST   /tickets/ID/leave  the ticket's players have left their seats; only with Config.Leave
//
// The client chooses the ID of a ticket, at random, and repeats a PUT with the same ID and body until it is answered:
// that is the same ticket. The answer to each of them is a Ticket as JSON:
//
//	{"id":"a3f1…","state":"waiting","waited_ms":1200,"why":"window"}
//	{"id":"a3f1…","state":"seated","waited_ms":2400,"tile":"85283473fffffff","gateway":"wss://…",
//	 "relay":"wss://…","seats":[0],"take_by":1785585600123,"token":"…"}
//
// A seated ticket's player connects to gateway and relay, with token if that is there, before take_by. A seat that is
// not taken by then goes back, and the ticket waits again: follow it until the player sits.
//
//	status  meaning
//	400     an argument is wrong; the text says which
//	401     no valid token
//	404     there is no such ticket of this player: others' tickets look the same
//	409     the ID was used for another ticket, or the player has an open ticket
//	410     the ticket has no seat to leave
//	429     the queue has no room, or the ticket too many followers
//	503     the store did not answer: the outcome may be unknown, so repeat the request with the same ID
//
// A WebSocket offers the subprotocol tilefence.ticket.v1; a browser, which cannot set a header, offers its token in
// another one beside it (session.TokenProtocol). Each text message is a Ticket. The server closes it with status 1000
// after a terminal state, with 1013 if a newer connection of the ticket's players took its place, and with 4003 when
// the player's identity expires.
//
// # What it promises, and what it does not
//
// A ticket is shown to its players alone, and cancelled by them alone. A party is made of players who gave their tokens
// to the one who asks: Config.Friend checks them. Requests from pages of another origin are refused. A body is read to
// 16 KiB. Followers are bounded by match.Lobby, tickets by match.Queue: the address of the client, of IPv6 the /64, is
// Ticket.Source. There is no limit of requests per second: that is for the load balancer.
//
// A Handler holds no state. Any number of processes may serve the same queue.
package matchhttp
