//go:build !linux

package devstack

import (
	"errors"
	"os"
	"syscall"
)

// The package compiles everywhere, so that programs with a local mode do; Start refuses.
const (
	supported    = false
	resumeSignal = syscall.SIGTERM
)

type serverUser struct{ uid, gid int }

func unprivilegedUser(string) (*serverUser, error) { return nil, errors.ErrUnsupported }

func childAttr(*serverUser, syscall.Signal) *syscall.SysProcAttr { return nil }

func tryLock(*os.File) (bool, error) { return false, errors.ErrUnsupported }
