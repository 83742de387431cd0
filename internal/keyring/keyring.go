// Package keyring is the keys by which the processes of a deployment know each other's words. Every process has the
// same ones. The first one signs, all are accepted, so that a key is replaced without downtime: add the new one at the
// end everywhere, then put it first everywhere, then leave the old one out.
package keyring

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// Least is the fewest bytes of a key.
const Least = 16

// Validate returns a *fence.ArgumentError that names a field for a key that is too short. Without keys it is nil.
func Validate(field string, keys [][]byte) error {
	for _, key := range keys {
		if len(key) < Least {
			return &fence.ArgumentError{Field: field, Value: fmt.Sprintf("a key of %d bytes", len(key)),
				Want: "at least 16 random bytes each"}
		}
	}
	return nil
}

// Sign returns the HMAC-SHA256 of parts under a key. The length of each part goes before it, so that no two lists are
// the same bytes.
func Sign[P string | []byte](key []byte, parts ...P) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range parts {
		_, _ = fmt.Fprintf(mac, "%d:", len(part))
		_, _ = mac.Write([]byte(part))
	}
	return mac.Sum(nil)
}

// Signed reports whether sum is that of any key.
func Signed[P string | []byte](keys [][]byte, sum []byte, parts ...P) (found bool) {
	for _, key := range keys {
		found = hmac.Equal(sum, Sign(key, parts...)) || found
	}
	return found
}
