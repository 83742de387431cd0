package gate

import (
	"errors"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/relay/session"
)

// Statuses of close frames; docs/wire.md says what a client does about each.
const (
	closePolicy   = 1008
	closeTryLater = 1013
	closeExpired  = 4003
)

// refusal is how a client is answered for an error of Accept or Identify. What exactly is wrong with a token, or why
// the game does not let the player in, is for the log alone.
type refusal struct {
	status int    // of HTTP
	code   int    // of a close frame
	text   string // also the reason of a close frame: at most 123 bytes
	header map[string]string
}

func refusalOf(err error) refusal {
	denied := refusal{status: http.StatusUnauthorized, code: closePolicy, text: "not authenticated"}
	switch {
	case errors.Is(err, ErrTooMany):
		return refusal{http.StatusTooManyRequests, closeTryLater, "too many connections",
			map[string]string{"Retry-After": "10"}}
	case errors.Is(err, ErrFull):
		return refusal{http.StatusServiceUnavailable, closeTryLater, "no more clients are taken here; try another one",
			map[string]string{"Retry-After": "1"}}
	case errors.Is(err, ErrTimeout):
		return refusal{http.StatusServiceUnavailable, closeTryLater, "the game did not decide in time; try again",
			map[string]string{"Retry-After": "1"}}
	case errors.Is(err, session.ErrNoToken): // RFC 6750, section 3: without an error code
		denied.text = "not authenticated: there is no token"
		denied.header = map[string]string{"WWW-Authenticate": "Bearer"}
	case errors.Is(err, session.ErrExpired):
		denied.code, denied.text = closeExpired, "not authenticated: the token has expired"
		denied.header = invalidToken("the token has expired")
	case errors.Is(err, session.ErrToken):
		denied.text = "not authenticated: the token is not valid"
		denied.header = invalidToken("the token is not valid")
	}
	return denied
}

func invalidToken(why string) map[string]string {
	return map[string]string{"WWW-Authenticate": `Bearer error="invalid_token", error_description="` + why + `"`}
}

// Answer writes the response to a request that is refused for an error of Accept or Identify.
func Answer(w http.ResponseWriter, err error) {
	as := refusalOf(err)
	for name, value := range as.header {
		w.Header().Set(name, value)
	}
	http.Error(w, as.text, as.status)
}

// partingTimeout bounds how long a browser may take to read why it is refused.
const partingTimeout = time.Second

// Refuse is Answer for a request that is a WebSocket handshake of an allowed origin, as offer says. A browser does not
// show its page what a handshake is answered: only 101 and a close frame reach it. A request with an origin is a
// browser's.
func Refuse(w http.ResponseWriter, r *http.Request, offer socket.Offer, err error) {
	if r.Header.Get("Origin") == "" {
		Answer(w, err)
		return
	}
	c, failed := socket.Accept(w, r, offer, 0, nil, func() error { return nil })
	if failed != nil {
		return
	}
	defer c.Close()
	as := refusalOf(err)
	if c.SetReadDeadline(time.Now().Add(partingTimeout)) != nil ||
		c.Send(partingTimeout, socket.CloseFrame(as.code, as.text)) != nil {
		return
	}
	c.AwaitClose() // or what the page has sent meanwhile would reset the connection, and the reason with it
}
