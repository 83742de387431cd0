package coldrestore_test

import (
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// TestOwnerAndMasterAreLost: the owner and the master of its tile die together, and the replica that is promoted has
// not heard from the master for a while.
func TestOwnerAndMasterAreLost(t *testing.T) {
	t.Parallel()
	c := newCluster(t)
	for _, class := range classes {
		t.Run(class.String(), func(t *testing.T) { ownerAndMasterAreLost(newWorld(t, c.servers(t, class)), c) })
	}
}

func ownerAndMasterAreLost(w *world, c *cluster) {
	first := w.own("first:1")
	kept := first.play("kept", times(25)) // some of them at a confirmation
	master, replica := c.serving(w.T, w.tile)
	_, at := first.state()
	waittest.Until(w, func() bool {
		return c.has(w.T, replica, w.tile, at)
	}, soon, time.Millisecond, "the replica has what was acknowledged")

	// The replica sleeps, and its connection is gone when it wakes: what the master takes from now on dies with it.
	w.checkpoints.shut.Store(true)
	require.NoError(w, replica.Signal(syscall.SIGSTOP))
	defer func() { _ = replica.Signal(syscall.SIGCONT) }()
	c.cutReplicas(w.T, master)
	until := time.Now().Add(700 * time.Millisecond)
	recent := first.play("recent", func(n int) bool { return n >= 20 || time.Now().After(until) })
	if w.class == tile.Replicated {
		require.Empty(w, recent, "without its replica nothing is acknowledged")
	} else {
		require.NotEmpty(w, recent)
	}
	first.crash()
	require.NoError(w, master.Signal(os.Kill))
	require.NoError(w, replica.Signal(syscall.SIGCONT))
	c.promoted(w.T, w.tile, replica)
	require.NoError(w, master.Restart(w.Context())) // an install wants every replica
	w.checkpoints.shut.Store(false)

	second := w.own("second:1")
	state, _ := second.state()
	require.Zero(w, w.missing(kept, state), "what a replica had is kept")
	lost := w.missing(recent, state)
	w.Logf("%s: %d of %d actions lost", w.class, lost, len(recent))
	if w.class == tile.Checkpointed {
		require.Len(w, recent, lost, "the promoted replica never had them, or the test lost nothing")
	} else {
		require.Zero(w, lost, "%s promises that nothing acknowledged is lost", w.class)
	}
	w.converges(second)
	after := second.play("after", times(10))
	state, _ = second.state()
	require.Zero(w, w.missing(after, state))
	w.converges(second)
	second.crash()
	c.whole(w.T)
}
