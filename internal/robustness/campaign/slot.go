//go:build unix

package campaign

import (
	"cmp"
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
	contact string
	gossips string // address
	orders  string // address at which it takes orders
	lives   int
	proc    *devstack.Process
	logs    []string  // of all its processes
	heard   time.Time // last sign of life; guarded by supervisor.mu
	taking  bool      // some tile, when last heard; guarded by supervisor.mu
}

// newWorkerSlot makes the place of a worker on a host of its own.
func newWorkerSlot(run, i int) (*workerSlot, error) {
	var free [3]string // a moment ago, which is enough
	for j := range free {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.2.%d:0", i+1))
		if err != nil {
			return nil, err
		}
		defer func() { _ = listener.Close() }()
		free[j] = listener.Addr().String()
	}
	return &workerSlot{name: fmt.Sprintf("worker-%d-%d", run, i+1), contact: free[0], gossips: free[1],
		orders: free[2]}, nil
}

// startWorker starts the next process of a slot, in place of the last if there was one.
func (r *run) startWorker(ctx context.Context, w *workerSlot) error {
	if w.proc != nil {
		w.proc.Stop()
	}
	w.lives++
	name := fmt.Sprintf("%s-%d", w.name, w.lives)
	tiles := r.tiles
	if r.Fault.loses { // then no class that tiles have here promises travellers anything
		tiles = nil
	}
	cfg, err := json.Marshal(workerConfig{Process: name, Contact: w.contact, Gossip: w.gossips, Orders: w.orders,
		History: r.historyPath(name), Servers: r.servers, Tiles: tiles, Tick: tick, Travellers: r.travellers(),
		Unbroken: r.Fault == unbroken, Durable: r.Fault == unbroken && r.cfg.Durable})
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
			_, err := r.control.tell(ctx, w.orders, order{})
			return err
		}})
	if err != nil {
		return err
	}
	w.proc, w.logs = proc, append(w.logs, proc.LogPath())
	return nil
}

// endWorkers kills all workers: nothing they could still do belongs to the history.
func (r *run) endWorkers() {
	for _, w := range r.workers {
		if w.proc != nil {
			_ = w.proc.Signal(os.Kill) // an error means that it has ended already
			w.proc.Stop()
		}
	}
}

// quiet returns nil unless a worker ended unexpectedly or printed anything: a panic, or a race that the
// race detector found.
func (r *run) quiet() error {
	var errs []error
	for _, w := range r.workers {
		select {
		case <-w.proc.Exited():
			errs = append(errs, fmt.Errorf("%s ended unexpectedly", w.name))
		default:
		}
		for _, path := range w.logs {
			if text, err := os.ReadFile(path); err != nil || len(text) > 0 {
				errs = append(errs, fmt.Errorf("%s: %w %s", path, cmp.Or(err, errPrinted), text[:min(len(text), 8000)]))
			}
		}
	}
	return errors.Join(errs...)
}

var errPrinted = errors.New("the worker printed")
