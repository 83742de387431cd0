package devstack

import (
	"os/exec"
	"runtime"
)

// spawner starts all child processes from one operating-system thread that lives as long as the stack.
// The kernel's "signal me when my parent dies" means the thread that forked, not its process; Go ends
// idle threads when it likes, which would end servers at random.
type spawner struct {
	jobs    chan func()
	refused chan struct{} // closed when no further process may be started
	quit    chan struct{} // closed to end the thread
	ended   chan struct{} // closed when the thread's goroutine is done
}

func newSpawner() *spawner {
	s := &spawner{
		jobs:    make(chan func()),
		refused: make(chan struct{}),
		quit:    make(chan struct{}),
		ended:   make(chan struct{}),
	}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread() // never unlocked: the thread ends with this goroutine
		for {
			select {
			case job := <-s.jobs:
				job()
			case <-s.quit:
				return
			}
		}
	}()
	return s
}

// start starts cmd, or returns ErrStopped.
func (s *spawner) start(cmd *exec.Cmd) error {
	if s.stopped() { // looked at first: the select below would choose at random
		return ErrStopped
	}
	result := make(chan error, 1)
	select {
	case s.jobs <- func() { result <- cmd.Start() }:
		return <-result
	case <-s.refused:
		return ErrStopped
	}
}

func (s *spawner) stopped() bool {
	select {
	case <-s.refused:
		return true
	default:
		return false
	}
}

// refuse makes later calls of start fail. It is called once.
func (s *spawner) refuse() { close(s.refused) }

// end ends the thread, and with it every child still alive. It is called once, after refuse.
func (s *spawner) end() {
	close(s.quit)
	<-s.ended
}
