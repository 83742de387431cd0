package devstack

import (
	"os/exec"
	"syscall"
)

// EndTogether has the command that is about to start killed when the thread that starts it ends, as it does with the
// process.
func EndTogether(c *exec.Cmd) { c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }
