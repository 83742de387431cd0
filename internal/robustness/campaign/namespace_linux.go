package campaign

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// EnterNamespace begins this program anew in a network namespace of its own. There it returns at once, and so it does,
// in this one, where the kernel, the user's privileges or a missing program forbid it: then the faults that part hosts
// are skipped, and the report says why. Call it first thing in main or TestMain.
func EnterNamespace() {
	if os.Getenv(envNamespace) != "" {
		return
	}
	if err := tryNamespace(); err != nil {
		_ = os.Setenv(envNamespace, err.Error())
		return
	}
	runtime.LockOSThread() // a namespace is a thread's; the thread that executes a program becomes all of it
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		err = unix.Exec("/proc/self/exe", os.Args, append(os.Environ(), envNamespace+"="+inNamespace))
	}
	fmt.Fprintln(os.Stderr, "enter a network namespace:", err)
	os.Exit(1)
}

// tryNamespace looks whether routing rules work in a namespace of a child's own.
func tryNamespace() error {
	if _, err := exec.LookPath("ip"); err != nil {
		return errors.New("the program ip is not installed (Debian package iproute2)")
	}
	cmd := exec.Command("/bin/sh", "-c", prepare+" && ip rule add pref 10 from 127.0.2.1 to 127.0.1.1"+vanish)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("no network namespace of our own: %w %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
