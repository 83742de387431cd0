package game

import (
	"crypto/hmac"
	"crypto/sha256"
	"time"

	"github.com/tilefence/tilefence/relay/session"
)

// PlayerKeys are the keys of the tokens that say who a player is. They come from the secret of the actors, but tell
// nothing about it, nor about the keys by which the actors know each other.
func PlayerKeys(secret string) session.Keys {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte("players of the battle"))
	return session.Keys{m.Sum(nil)}
}

// TokenLife is how long a token lasts. Clients renew their sessions before it ends.
const TokenLife = 10 * time.Minute
