package devstack

import (
	"os/exec"
	"runtime"
	"sync"
)

// spawner starts all child processes from one operating-system thread that lives as long as the stack.
// The kernel's "signal me when my parent dies" means the thread that forked, not its process; Go ends
// idle threads when it likes, which would end servers at random.
type spawner struct {
	jobs  chan func()   // closed to give the thread back
	ended chan struct{} // closed when its goroutine is done

	mu      sync.Mutex
	refuses bool
}

func newSpawner() *spawner {
	s := &spawner{jobs: make(chan func()), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		runtime.LockOSThread()
		// The thread lives on: before it was locked, other goroutines may have started children from it that the kernel
		// would end with it.
		defer runtime.UnlockOSThread()
		for job := range s.jobs {
			job()
		}
	}()
	return s
}

// start starts cmd, or returns ErrStopped.
func (s *spawner) start(cmd *exec.Cmd) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses {
		return ErrStopped
	}
	result := make(chan error)
	s.jobs <- func() { result <- cmd.Start() }
	return <-result
}

func (s *spawner) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refuses
}

// refuse makes later calls of start fail.
func (s *spawner) refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = true
}

// end gives the thread back. It is called once, after refuse. A child that is still alive ends with this process.
func (s *spawner) end() {
	close(s.jobs)
	<-s.ended
}
