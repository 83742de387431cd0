package faultinject_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/faultinject"
)

// TestAcceptOfTheDead: a server whose listener is killed is not told, until it closes the listener itself: a process
// that was killed sees no error, and does not end by one.
func TestAcceptOfTheDead(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	killed := &faultinject.Listener{Listener: l}
	accepted := make(chan error, 1)
	go func() {
		_, err := killed.Accept()
		accepted <- err
	}()
	killed.Kill()
	again, err := net.Listen("tcp", l.Addr().String())
	require.NoError(t, err, "another process may listen there")
	select {
	case err := <-accepted:
		t.Fatal(err)
	case <-time.After(20 * time.Millisecond):
	}
	require.NoError(t, killed.Close())
	assert.ErrorIs(t, <-accepted, net.ErrClosed)
	require.NoError(t, again.Close())
}
