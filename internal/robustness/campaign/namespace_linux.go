package campaign

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
)

// EnterNamespace runs this program again in a network namespace of its own and ends this process with the
// other's exit code. In the other one it returns at once, and so it does, in this one, where the kernel,
// the user's privileges or a missing program forbid it: then the faults that part hosts are skipped, and
// the report says why. Call it first thing in main or TestMain.
func EnterNamespace() {
	if os.Getenv(envNamespace) != "" {
		return
	}
	if err := tryNamespace(); err != nil {
		_ = os.Setenv(envNamespace, err.Error())
		return
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Args[0] = os.Args[0]
	cmd.Env = append(os.Environ(), envNamespace+"="+inNamespace)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// Signals of the terminal reach the child by themselves; it decides when to end.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the kernel's Pdeathsig means the thread that started the child
	if err := cmd.Start(); err != nil {
		runtime.UnlockOSThread()
		_ = os.Setenv(envNamespace, err.Error())
		signal.Stop(signals)
		return
	}
	go func() {
		for s := range signals {
			if s == syscall.SIGTERM {
				_ = cmd.Process.Signal(s)
			}
		}
	}()
	err := cmd.Wait()
	var exit *exec.ExitError
	switch {
	case err == nil:
		os.Exit(0)
	case errors.As(err, &exit) && exit.ExitCode() >= 0:
		os.Exit(exit.ExitCode())
	}
	fmt.Fprintln(os.Stderr, err)
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
