package session

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Identity is who a connection belongs to. The zero value is a stranger's, who may stay.
type Identity struct {
	// Actor is the player's name, at most MaxActor bytes of fence.IsName. A gateway needs one; a relay also serves
	// strangers, whose actor is empty.
	Actor string
	// Expires is when the connection ends, unless it is refreshed. Zero: it does not.
	Expires time.Time
	// Value is the game's own: a role, a team. It must not be changed once it was returned.
	Value any
}

// MaxActor is the most bytes of an actor's name.
const MaxActor = 64

// Validate returns a *fence.ArgumentError for a name that is none. An empty one is valid.
func (i Identity) Validate() error {
	if i.Actor != "" && !fence.IsName(i.Actor, MaxActor) {
		return &fence.ArgumentError{Field: "Actor", Value: i.Actor, Want: "a name of at most 64 bytes that can be seen"}
	}
	return nil
}

// Expired reports whether the session is over.
func (i Identity) Expired(now time.Time) bool { return !i.Expires.IsZero() && !now.Before(i.Expires) }

// AuthenticateFunc says who asks for a connection. It must return when the request's context ends, which is after
// Limits.Timeout. It must change nothing: the connection may still fail, and it may be called again for the same
// request. An error refuses the connection with status 401; its text is logged, not sent. Of ErrToken,
// ErrNoToken and ErrExpired the response says which it is.
//
// It is called again when a client sends a new token over its connection. That request never came over HTTP: it has the
// RemoteAddr of the first one, the token where Token finds it, and nothing else. The actor must be the same.
type AuthenticateFunc func(r *http.Request) (Identity, error)

// Token is the token that a request carries, or an empty text: in the header Authorization, after "Bearer ", or, since
// browsers cannot set that for a WebSocket, in an offered subprotocol that begins with TokenProtocol.
func Token(r *http.Request) string {
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	for _, line := range r.Header.Values("Sec-WebSocket-Protocol") {
		for name := range strings.SplitSeq(line, ",") {
			if token, ok := strings.CutPrefix(strings.TrimSpace(name), TokenProtocol); ok {
				return token
			}
		}
	}
	return ""
}

// WithToken returns a copy of a client's headers with a token where Token finds it.
func WithToken(header http.Header, token string) http.Header {
	header = header.Clone()
	if header == nil {
		header = http.Header{}
	}
	header.Set("Authorization", "Bearer "+token)
	return header
}

// TokenProtocol begins the subprotocol that carries a browser's token. Unlike a query it is in no server's log.
const TokenProtocol = "tilefence.token."

// Limits bound what one address or one actor may take of a server, and how long the game's functions may take. Zero
// fields mean the defaults.
type Limits struct {
	// Timeout bounds a call of AuthenticateFunc, and of a relay's AuthorizeFunc. Default 5 s.
	Timeout time.Duration

	// PerAddress is how many connections one address may have, and how many handshakes it may begin in a minute; more
	// are answered 429. Of IPv6 it is the /64 that counts, and a /48 may have twice as many connections and four times
	// as many handshakes. Default: a quarter of the server's MaxClients.
	PerAddress int
	// PerActor is how many connections one actor may have; more are answered 429. Default 16. On a full server it is
	// fewer: an actor that is to have at least as many as the newcomer even then gives its newest one, which is closed
	// with status 1013. Strangers count by address. Where no actor has more than others, an address with more than a
	// 64th of the server does.
	PerActor int
	// Address names the address of a request, for servers behind a load balancer: from a header that the load balancer
	// sets and no client can. Default: the peer's, if it is no private or loopback address; those are not limited,
	// since a load balancer speaks for all players.
	Address func(*http.Request) string
}

// contextKey is the key of the Identity in a context.
type contextKey struct{}

// NewContext returns a context that carries an identity.
func NewContext(ctx context.Context, who Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, who)
}

// FromContext returns the identity in a context, as gatewayws puts it into that of each intent; ok is false if there is
// none.
func FromContext(ctx context.Context) (who Identity, ok bool) {
	who, ok = ctx.Value(contextKey{}).(Identity)
	return who, ok
}
