package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// A storm of viewers: so many come within stormWithin, and leave when each has seen its tile.
const (
	stormViewers = 300
	stormWithin  = time.Second
)

// storm is viewers who come all at once, each an ordinary client of the relay that watches the whole of a tile.
type storm struct {
	*chaos
	ctx      context.Context // of those who have not connected yet
	stop     context.CancelFunc
	arriving sync.WaitGroup
	sights   atomic.Int64 // viewers that have got their tile

	mu   sync.Mutex
	here []*relayclient.Client
	errs []error
}

// viewersStorm is the fault that very many come to watch.
func viewersStorm() fault {
	return fault{"storm of viewers",
		fmt.Sprintf("%d new clients within a second, each for a whole tile. The players see no less of theirs.",
			stormViewers),
		on(relaySystem, func(c *chaos) strike {
			s := &storm{chaos: c}
			return strike{lasts: c.between(stormWithin, 2*stormWithin), hit: always(s.begin), heal: s.end}
		})}
}

// begin sends the viewers on their way.
func (s *storm) begin() {
	s.wantFiles(2 * (s.options.clients + stormViewers))
	s.ctx, s.stop = context.WithCancel(context.Background())
	s.arriving.Go(func() {
		for i := range stormViewers {
			s.arriving.Go(func() {
				if err := s.come(i); err != nil {
					s.mu.Lock()
					s.errs = append(s.errs, err)
					s.mu.Unlock()
				}
			})
			if !wait.For(s.ctx, stormWithin/stormViewers) {
				return
			}
		}
	})
}

// come connects one viewer.
func (s *storm) come(i int) error {
	seen := sync.OnceFunc(func() { s.sights.Add(1) })
	client, err := dial(s.ctx, func(ctx context.Context) (*relayclient.Client, error) {
		return relayclient.Dial(ctx, s.view, &relayclient.Config{HTTPClient: s.secure.player(),
			Sync: func(relayclient.Sync) { seen() }, Reconnect: true, Logger: s.logger})
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.here = append(s.here, client)
	s.mu.Unlock()
	return client.Subscribe(s.ctx, s.world[i%len(s.world)])
}

// end waits until every viewer has seen its tile; then all leave.
func (s *storm) end(ctx context.Context) error {
	err := s.until(ctx, "every viewer has seen its tile", func() bool { return s.sights.Load() == stormViewers })
	s.stop()
	s.arriving.Wait()
	for _, client := range s.here {
		_ = client.Close() // it leaves
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("%d of %d have: %w", s.sights.Load(), stormViewers, err), errors.Join(s.errs...))
	}
	return err
}
