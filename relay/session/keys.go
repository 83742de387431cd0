package session

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Keys sign the tokens that say who a player is, with HMAC-SHA-256. The program that signs players in, relays and
// gateways have the same ones, of at least 32 random bytes each. The first signs, all verify: to replace a key, add the
// new one at the end everywhere, then put it first, then leave the old one out.
//
// A token is three parts with dots between: "tf1", the claims as JSON, and the MAC of the two, the latter in base64url.
// It is no JWT: there is no algorithm to choose, and so none to choose wrongly.
type Keys [][]byte

// ErrToken means that a token is missing, damaged, signed with another key, or expired. An AuthenticateFunc that
// returns one of these errors has the client told which of them it was, and of an ErrToken that the token is not valid.
var (
	ErrToken   = errors.New("session: no valid token")
	ErrNoToken = fmt.Errorf("%w: there is none", ErrToken)
	ErrExpired = fmt.Errorf("%w: it has expired", ErrToken)
)

const (
	tokenVersion = "tf1"
	minKey       = 32
	maxToken     = 4 << 10 // bytes of a token that is read
)

// claims are what a token says.
type claims struct {
	Actor   string `json:"actor"`
	Expires int64  `json:"expires"` // milliseconds since 1970
	Value   string `json:"value,omitempty"`
}

// Validate returns a *fence.ArgumentError if there is no key, or one too short.
func (k Keys) Validate() error {
	if len(k) == 0 {
		return &fence.ArgumentError{Field: "Keys", Value: "none", Want: "at least one key"}
	}
	for _, key := range k {
		if len(key) < minKey {
			return &fence.ArgumentError{Field: "Keys", Value: fmt.Sprintf("a key of %d bytes", len(key)),
				Want: "at least 32 random bytes each"}
		}
	}
	return nil
}

// Sign returns a token for an identity that has an actor and expires. Its Value, if there is one, must be a string.
// Errors: a *fence.ArgumentError.
func (k Keys) Sign(who Identity) (string, error) {
	if err := errors.Join(k.Validate(), who.Validate()); err != nil {
		return "", err
	}
	value, isText := who.Value.(string)
	switch {
	case who.Actor == "":
		return "", &fence.ArgumentError{Field: "Actor", Value: "", Want: "a player's name"}
	case who.Expires.IsZero():
		return "", &fence.ArgumentError{Field: "Expires", Value: "zero", Want: "a time: nobody can take a token back"}
	case who.Value != nil && !isText:
		return "", &fence.ArgumentError{Field: "Value", Value: fmt.Sprintf("%T", who.Value), Want: "a string, or nil"}
	}
	said, err := json.Marshal(claims{Actor: who.Actor, Expires: who.Expires.UnixMilli(), Value: value})
	if err != nil {
		return "", err
	}
	signed := tokenVersion + "." + base64.RawURLEncoding.EncodeToString(said)
	return signed + "." + base64.RawURLEncoding.EncodeToString(mac(k[0], signed)), nil
}

// Verify returns the identity that a token names. Errors: ErrToken, and of these ErrNoToken and ErrExpired.
func (k Keys) Verify(token string) (Identity, error) {
	if token == "" {
		return Identity{}, ErrNoToken
	}
	signed, sum, ok := cutLast(token)
	if !ok || len(token) > maxToken {
		return Identity{}, fmt.Errorf("%w: it is malformed", ErrToken)
	}
	given, err := base64.RawURLEncoding.Strict().DecodeString(sum)
	if err != nil || !k.signed(signed, given) {
		return Identity{}, fmt.Errorf("%w: it is signed with another key", ErrToken)
	}
	encoded, ok := strings.CutPrefix(signed, tokenVersion+".")
	said, err := base64.RawURLEncoding.DecodeString(encoded)
	var c claims
	if !ok || err != nil || json.Unmarshal(said, &c) != nil || c.Actor == "" || c.Expires == 0 {
		return Identity{}, fmt.Errorf("%w: it is of another version", ErrToken)
	}
	who := Identity{Actor: c.Actor, Expires: time.UnixMilli(c.Expires)}
	if c.Value != "" {
		who.Value = c.Value
	}
	if who.Expired(time.Now()) {
		return Identity{}, ErrExpired
	}
	return who, nil
}

// Authenticate is an AuthenticateFunc: the identity in the token of a request.
func (k Keys) Authenticate(r *http.Request) (Identity, error) { return k.Verify(Token(r)) }

func (k Keys) signed(text string, given []byte) bool {
	return slices.ContainsFunc(k, func(key []byte) bool { return hmac.Equal(mac(key, text), given) })
}

func cutLast(token string) (signed, sum string, ok bool) {
	at := strings.LastIndexByte(token, '.')
	if at < 0 {
		return "", "", false
	}
	return token[:at], token[at+1:], true
}

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}
