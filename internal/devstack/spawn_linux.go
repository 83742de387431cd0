package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	supported    = true
	resumeSignal = syscall.SIGCONT
)

// serverUser is the unprivileged user as which a server runs.
type serverUser struct {
	uid, gid int
}

// unprivilegedUser returns the user called name when this process is root, else nil: without privileges
// a server can only run as the caller.
func unprivilegedUser(name string) (*serverUser, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	found, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, uidErr := strconv.Atoi(found.Uid)
	gid, gidErr := strconv.Atoi(found.Gid)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return nil, fmt.Errorf("ids of user %s: %w", name, err)
	}
	return &serverUser{uid: uid, gid: gid}, nil
}

// childAttr puts a child into a process group of its own, so that a Ctrl-C in the terminal reaches only
// the parent, which then stops its servers in order; and lets the kernel send it orphaned when the
// thread that started it is gone.
func childAttr(as *serverUser, orphaned syscall.Signal) *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Setpgid: true, Pdeathsig: orphaned}
	if as != nil {
		attr.Credential = &syscall.Credential{Uid: uint32(as.uid), Gid: uint32(as.gid)}
	}
	return attr
}

// tryLock takes the exclusive lock of an open file, which ends with the last process that has it open.
// It returns false if another process holds the lock.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}
