package tilefence

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"

	"github.com/tilefence/tilefence/fence"
)

// Server is a part of a process that runs until its context ends: the servers of this package, and anything of
// the caller's with the same method.
type Server interface {
	// Run runs until ctx ends or something fails, stops in good order and returns; nil if nothing failed.
	Run(ctx context.Context) error
}

// Run runs servers in one process until ctx ends or one of them ends by itself. It starts them from the last to
// the first and stops them from the first to the last, each after the one before has ended.
//
// List them in the direction that data flows: gateways, tile servers, bridges, relays, checkpoint servers. So
// every intent that was admitted reaches its tile, every batch its watchers, and the checkpointer's last pass
// comes after the tiles' last snapshots. Servers of this package in another order are a *fence.ArgumentError,
// and nothing is started; servers of the caller's may stand anywhere.
//
// The error joins those of all servers, each under the name of its type. A server that ends by itself without an
// error ends Run as ctx does.
func Run(ctx context.Context, servers ...Server) error {
	if err := inOrder(servers); err != nil {
		return err
	}
	c := newCrew(ctx)
	for i := len(servers) - 1; i >= 0; i-- {
		c.start(nameOf(servers[i]), servers[i].Run)
	}
	c.wait(ctx)
	return c.stop()
}

// staged is a server that has a place in the order of stopping.
type staged interface{ stage() int }

func (*GatewayServer) stage() int    { return 1 }
func (*TileServer) stage() int       { return 2 }
func (*BridgeServer) stage() int     { return 3 }
func (*RelayServer) stage() int      { return 4 }
func (*CheckpointServer) stage() int { return 5 }

func inOrder(servers []Server) error {
	highest, before := 0, ""
	for _, s := range servers {
		if s == nil || reflect.ValueOf(s).Kind() == reflect.Pointer && reflect.ValueOf(s).IsNil() {
			return argument("servers", s, "no nil server")
		}
		st, ok := s.(staged)
		if !ok {
			continue
		}
		if st.stage() < highest {
			return argument("servers", nameOf(s)+" after "+before,
				"gateways, tile servers, bridges, relays, checkpoint servers, in this order: they stop in it")
		}
		highest, before = st.stage(), nameOf(s)
	}
	return nil
}

func nameOf(s Server) string {
	t := reflect.TypeOf(s)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// crew runs the parts of a server. Each has a context of its own, so that they are stopped one after another, the
// last that was started first.
type crew struct {
	ctx   context.Context // for values; a part is stopped by its own cancel
	ended chan struct{}   // closed when the first part ends by itself
	once  sync.Once
	stops []func() error
}

func newCrew(ctx context.Context) *crew {
	return &crew{ctx: context.WithoutCancel(ctx), ended: make(chan struct{})}
}

// start runs a part.
func (c *crew) start(name string, run func(context.Context) error) {
	ctx, cancel := context.WithCancel(c.ctx)
	done := make(chan error, 1)
	go func() {
		err := run(ctx)
		if err != nil {
			err = fmt.Errorf("%s: %w", name, err)
		}
		done <- err
		c.once.Do(func() { close(c.ended) })
	}()
	c.stops = append(c.stops, func() error {
		cancel()
		return <-done
	})
}

// onStop has f called in its turn when the parts are stopped.
func (c *crew) onStop(f func()) {
	c.stops = append(c.stops, func() error { f(); return nil })
}

// wait returns when ctx ends or a part has ended by itself.
func (c *crew) wait(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-c.ended:
	}
}

// stop stops the parts in the reverse order of their start and returns what failed.
func (c *crew) stop() error {
	var errs []error
	for i := len(c.stops) - 1; i >= 0; i-- {
		errs = append(errs, c.stops[i]())
	}
	return errors.Join(errs...)
}

func argument(field string, value any, want string) error {
	return &fence.ArgumentError{Field: field, Value: value, Want: want}
}

// alreadyRun is the error of a second Run.
func alreadyRun(server string) error { return fmt.Errorf("%s: %w", server, fence.ErrAlreadyRun) }
