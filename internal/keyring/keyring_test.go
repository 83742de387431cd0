package keyring_test

import (
	"bytes"
	"encoding/hex"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/keyring"
)

func TestKeysAreReplaced(t *testing.T) {
	a, b := bytes.Repeat([]byte{1}, 16), bytes.Repeat([]byte{2}, 16)
	sum := keyring.Sign(a, "x", "yz")
	require.Equal(t, "78dd8a9a", hex.EncodeToString(sum[:4]))
	require.True(t, keyring.Signed([][]byte{b, a}, sum, []byte("x"), []byte("yz")))
	require.False(t, keyring.Signed([][]byte{b}, sum, "x", "yz"))
	require.False(t, keyring.Signed([][]byte{a}, sum, "xy", "z"), "parts do not run into each other")
	require.False(t, keyring.Signed(nil, sum, "x", "yz"))
	require.NoError(t, keyring.Validate("Keys", nil))
	require.ErrorIs(t, keyring.Validate("Keys", [][]byte{a, b[1:]}), fence.ErrInvalidArgument)
}
