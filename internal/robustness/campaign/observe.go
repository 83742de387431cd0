//go:build unix

package campaign

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
)

// auditEvery is how often the auditor looks. It does not see what comes and goes in between.
const auditEvery = 30 * time.Millisecond

// observers see what was committed: an auditor that reads the stores, and watchers of the relays that fold what reaches
// them.
type observers struct {
	recorder *history.Recorder
	log      stream.Log
	watchers []*game.Watcher
	wg       sync.WaitGroup
}

// start observes until ctx ends; then stop waits.
func (o *observers) start(ctx context.Context, tiles []fence.TileID, relays []string, watchers int) error {
	auditor := o.recorder.Auditor("auditor", o.log)
	o.wg.Go(func() { auditor.Run(ctx, tiles, auditEvery) })

	for i := range watchers {
		w, err := o.watch(ctx, fmt.Sprintf("watcher-%d", i), relays, tiles)
		if err != nil {
			return err
		}
		o.watchers = append(o.watchers, w)
	}
	return nil
}

func (o *observers) watch(
	ctx context.Context, name string, relays []string, tiles []fence.TileID,
) (*game.Watcher, error) {
	b := &balancer{relays: relays}
	w, err := game.Watch(ctx, o.recorder, name, b.dial, tiles...)
	if w != nil {
		o.wg.Go(func() { b.hop(ctx) })
	}
	return w, err
}

// balancer is the load balancer between a watcher and the relays: each connection goes to the next of them, and none
// lasts long.
type balancer struct {
	relays []string

	mu   sync.Mutex
	made int
	conn net.Conn // the one that lasts
}

// hopEvery is how often a watcher changes its relay.
const hopEvery = 1500 * time.Millisecond

func (b *balancer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	b.mu.Lock()
	to := b.relays[b.made%len(b.relays)]
	b.made++
	b.mu.Unlock()
	c, err := new(net.Dialer).DialContext(ctx, network, to)
	if err == nil {
		b.mu.Lock()
		b.conn = c
		b.mu.Unlock()
	}
	return c, err
}

// hop ends connections until ctx ends.
func (b *balancer) hop(ctx context.Context) {
	for {
		select {
		case <-time.After(hopEvery):
		case <-ctx.Done():
			return
		}
		b.mu.Lock()
		if b.conn != nil {
			_ = b.conn.Close()
		}
		b.mu.Unlock()
	}
}

func (o *observers) stop() {
	for _, w := range o.watchers {
		w.Close()
	}
	o.wg.Wait()
}
