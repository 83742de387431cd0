package devstack

import (
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	dirPattern = "tilefence-stack-*"
	lockName   = "lock"
)

// ownDir is the directory of one stack. The lock file in it stays locked while the process lives, which
// distinguishes the directory of a running stack from one that a killed process left.
type ownDir struct {
	path string
	lock *os.File
}

func makeOwnDir(parent string) (*ownDir, error) {
	path, err := os.MkdirTemp(parent, dirPattern)
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	if _, err := tryLock(lock); err != nil {
		return nil, fmt.Errorf("devstack: lock %s: %w", lock.Name(), err)
	}
	// PostgreSQL may run as another user, which must be able to enter; the files inside have their own modes.
	if err := os.Chmod(path, 0o711); err != nil {
		return nil, fmt.Errorf("devstack: %w", err)
	}
	return &ownDir{path: path, lock: lock}, nil
}

// sub makes a directory inside that belongs to owner; nil is the user of this process.
func (d *ownDir) sub(name string, owner *serverUser) (string, error) {
	path := filepath.Join(d.path, name)
	if err := os.MkdirAll(path, 0o700); err != nil {
		return "", err
	}
	if owner == nil {
		return path, nil
	}
	return path, os.Chown(path, owner.uid, owner.gid)
}

func (d *ownDir) remove() error {
	defer func() { _ = d.lock.Close() }()
	return removeTree(d.path)
}

// removeTree removes a directory in which the last children of a killed server may still be writing.
func removeTree(path string) error {
	var err error
	for range 20 {
		if err = os.RemoveAll(path); err == nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return err
}

// sweep removes what killed processes left in parent. It is a courtesy: what cannot be removed, for
// example because it belongs to another user, stays.
func sweep(parent string) {
	left, err := filepath.Glob(filepath.Join(parent, dirPattern))
	if err != nil {
		return
	}
	for _, path := range left {
		// A directory without a lock file is just being made, and is left alone.
		lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR, 0)
		if err != nil {
			continue
		}
		if free, err := tryLock(lock); err == nil && free && oldEnough(lock) {
			_ = removeTree(path)
		}
		_ = lock.Close()
	}
}

// oldEnough is false in the moment between the making of a lock file and its locking.
func oldEnough(lock *os.File) bool {
	info, err := lock.Stat()
	return err == nil && time.Since(info.ModTime()) > 5*time.Second
}
