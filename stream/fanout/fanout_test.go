package fanout_test

import (
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/stream/fanout"
)

// TestPresenceBytes holds the message of docs/wire.md.
func TestPresenceBytes(t *testing.T) {
	p := fanout.AppendPresence(nil, 0x0102030405060708)
	require.Equal(t, "010102030405060708", hex.EncodeToString(p))
	process, ok := fanout.DecodePresence(p)
	require.True(t, ok)
	require.Equal(t, uint64(0x0102030405060708), process)
	for _, bad := range []string{"", "01", "0201020304050607ff", "0101020304050607", "01010203040506070809"} {
		data, err := hex.DecodeString(bad)
		require.NoError(t, err)
		_, ok := fanout.DecodePresence(data)
		require.False(t, ok, bad)
	}
}
