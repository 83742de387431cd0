// Package session says who a connection of a player belongs to, and for how long. A relay and a gateway share it, so
// that a game authenticates at both with one function.
//
//	keys := session.Keys{key} // the same for the program that signs players in, and for relays and gateways
//	token, err := keys.Sign(session.Identity{Actor: "ann", Expires: time.Now().Add(10 * time.Minute)})
//	who, err := keys.Verify(token)
//
// Keys.Authenticate is an AuthenticateFunc over such tokens. A game that has cookies, or tokens of another kind, writes
// its own.
//
// # States of a connection
//
//	        origin     authenticated        registered
//	request ──────▶ · ──────────────▶ · ──────────────▶ open ──▶ closed: 4003 expired, 4004 ended, or any other status
//	   │               │                                 │ ▲
//	   └── 4xx, 503 ◀──┘                                 └─┘ refresh: a new token for the same actor
//
// The order is fixed: a request that is no WebSocket handshake, or comes from a page of another origin, is refused
// before AuthenticateFunc is called. If the sessions of an actor are ended while the actor's handshake is under way,
// the function is asked again before the connection counts.
//
// # What it promises, and what it does not
//
// A connection never changes its actor. It is closed within a second of its Identity's Expires (a gateway takes no
// intent after it), by the clock of the server. Ending sessions does not keep a player out: first make
// AuthenticateFunc or a relay's AuthorizeFunc refuse, then end. Tokens of Keys are signed, not encrypted, and cannot be
// taken back before they expire: let them live for minutes, and refresh.
package session
