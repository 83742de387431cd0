//go:build linux

package devstack

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestASpawnerGivesItsThreadBack: what others have started from the thread before goes on when the spawner ends. The
// kernel ends a child with the thread that started it.
func TestASpawnerGivesItsThreadBack(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1)) // so that the spawner is given the thread that this test leaves
	for range 20 {
		child := exec.Command("sleep", "60")
		child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		s, thread := newSpawner(), make(chan int, 1)
		s.jobs <- func() { thread <- unix.Gettid(); require.NoError(t, child.Start()) }
		s.end()
		require.NoError(t, unix.Tgkill(unix.Getpid(), <-thread, 0), "the thread has ended")
		require.NoError(t, child.Process.Signal(syscall.Signal(0)))
		require.NoError(t, child.Process.Kill())
		_ = child.Wait()
	}
}
