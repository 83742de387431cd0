package fence

import (
	"crypto/sha1" //nolint:gosec // a checksum against damage, not against an attacker
	"encoding/hex"
)

// Checksum is a snapshot's checksum: SHA-1 in lower-case hexadecimal, the digest a Redis function can
// compute by itself over the bytes it received.
func Checksum(blob []byte) string {
	sum := sha1.Sum(blob) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}
