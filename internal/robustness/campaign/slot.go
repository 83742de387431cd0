package campaign

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/tilefence/tilefence/internal/devstack"
)

// workerSlot is the place of a worker: its contact stays when another process takes the place of a killed
// one.
type workerSlot struct {
	name    string
	host    string
	contact string
	lives   int
	proc    *devstack.Process
	heard   time.Time // last sign of life; guarded by supervisor.mu
}

// newWorkerSlot makes the place of a worker on a host of its own.
func newWorkerSlot(run, i int) (*workerSlot, error) {
	host := fmt.Sprintf("127.0.2.%d", i+1)
	listener, err := net.Listen("tcp", host+":0")
	if err != nil {
		return nil, err
	}
	contact := listener.Addr().String() // free a moment ago, which is enough
	return &workerSlot{name: fmt.Sprintf("worker-%d-%d", run, i+1), host: host, contact: contact}, listener.Close()
}

// startWorker starts the next process of a slot, in place of the last if there was one.
func (r *run) startWorker(ctx context.Context, w *workerSlot) error {
	if w.proc != nil {
		w.proc.Stop()
	}
	w.lives++
	name := fmt.Sprintf("%s-%d", w.name, w.lives)
	cfg, err := json.Marshal(workerConfig{Process: name, Contact: w.contact, History: r.historyPath(name),
		Redis: r.stack.CoordAddrs, Postgres: r.stack.PostgresURL, Tick: r.cfg.Tick})
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	proc, err := r.stack.Launch(ctx, devstack.Program{Name: name, Addr: w.contact, Path: self,
		Env: []string{envWorker + "=" + string(cfg), envNamespace + "=worker"},
		Ready: func(ctx context.Context, _ int) error {
			_, err := r.control.status(ctx, w.contact)
			return err
		}})
	if err != nil {
		return err
	}
	w.proc = proc
	return nil
}

// endWorkers kills all workers: nothing they could still do belongs to the history.
func (r *run) endWorkers() {
	for _, w := range r.workers {
		if w.proc == nil {
			continue
		}
		if err := w.proc.Signal(os.Kill); err != nil && !errors.Is(err, os.ErrProcessDone) {
			continue
		}
		w.proc.Stop()
	}
}

// allAlive returns nil unless a worker has ended by itself.
func (r *run) allAlive() error {
	for _, w := range r.workers {
		select {
		case <-w.proc.Exited():
			log, _ := os.ReadFile(w.proc.LogPath())
			return fmt.Errorf("%s has ended by itself: %s", w.name, log[:min(len(log), 4000)])
		default:
		}
	}
	return nil
}
