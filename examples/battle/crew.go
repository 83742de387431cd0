package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"
)

// crew runs the actors of a process. Each has a context of its own, so that they can be drained one
// after another, in the order that loses nothing; the first that fails is reported at once.
type crew struct {
	ctx    context.Context // values only; actors are stopped by stop
	failed chan struct{}   // closed at the first failure
	mu     sync.Mutex
	errs   []error
}

func newCrew(ctx context.Context) *crew {
	return &crew{ctx: context.WithoutCancel(ctx), failed: make(chan struct{})}
}

// fail records a failure.
func (c *crew) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errs == nil {
		close(c.failed)
	}
	c.errs = append(c.errs, err)
}

// err is everything that failed.
func (c *crew) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.errs...)
}

// start runs an actor and returns the function that stops it and waits for its end.
func (c *crew) start(name string, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := run(ctx); err != nil {
			c.fail(fmt.Errorf("%s: %w", name, err))
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// listen takes an address. If the port is taken and free says so, any free one will do.
func listen(address string, free bool) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil || !free {
		return l, err
	}
	host, _, splitErr := net.SplitHostPort(address)
	if splitErr != nil {
		return nil, err
	}
	return net.Listen("tcp", net.JoinHostPort(host, "0"))
}

// serveHTTP serves until it is stopped; then it lets requests under way finish for a moment.
func (c *crew) serveHTTP(name string, l net.Listener, h http.Handler) (stop func()) {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second}
	return c.start(name, func(ctx context.Context) error {
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		select {
		case err := <-ended:
			return err
		case <-ctx.Done():
		}
		bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		if server.Shutdown(bounded) != nil {
			_ = server.Close() // whoever still reads has had its moment
		}
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}
