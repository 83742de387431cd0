package agonesmatch

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/tilefence/tilefence/fence"
)

var (
	// ErrContention: other requests took each game server that Agones chose. Ask again.
	ErrContention = errors.New("other requests took the game servers")
	// ErrAnswer: an answer is no GameServerAllocation, or what it says of a game server cannot be.
	ErrAnswer = errors.New("not an answer of Agones")
)

// StatusError is a request that the API server refused.
type StatusError struct {
	What    string // the request, such as "allocate match 4F2A"
	Code    int    // of HTTP
	Reason  string // of the Status, such as "Forbidden"; empty if the answer has none
	Message string // likewise
}

// advice says what to do about statuses.
var advice = map[int]string{
	http.StatusUnauthorized:        "check the token of the service account",
	http.StatusForbidden:           "let the service account create gameserverallocations and delete gameservers",
	http.StatusNotFound:            "install Agones, and check Config.Server",
	http.StatusUnprocessableEntity: "check the labels",
	http.StatusTooManyRequests:     "it is asked again; start fewer match servers if this lasts",
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("agones: %s: status %d", e.What, e.Code)
	if e.Reason != "" || e.Message != "" {
		text += fmt.Sprintf(" %s: %s", e.Reason, e.Message)
	}
	if to := advice[e.Code]; to != "" {
		text += ": " + to
	}
	return text
}

// refusal is the error of an answer with a status that is no success.
func refusal(what string, code int, body []byte) error {
	var s struct{ Reason, Message string }
	if json.Unmarshal(body, &s) != nil {
		s.Reason, s.Message = "", "" // a proxy's page
	}
	return &StatusError{What: what, Code: code, Reason: fence.AsName(s.Reason, maxReason),
		Message: fence.AsName(s.Message, maxMessage)}
}

// What a log has room for, in bytes.
const (
	maxReason  = 64
	maxMessage = 512
)
