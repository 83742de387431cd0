package chaos

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait"
)

// Viewers is how many clients come to watch in faultinject.ViewerStorm, within viewersWithin. They leave when each has
// seen its tile.
const (
	Viewers       = 300
	viewersWithin = time.Second
)

// viewers are clients who connect all at once.
type viewers struct {
	*Runner
	ctx      context.Context // of those who have not connected yet
	stop     context.CancelFunc
	arriving sync.WaitGroup
	seen     atomic.Int64 // viewers that have their tile

	mu     sync.Mutex
	leaves []func()
	errs   []error
}

// viewerStorm is the fault that very many clients come to watch.
func viewerStorm() Fault {
	return Fault{faultinject.ViewerStorm, on(Relay, func(r *Runner) Injection {
		v := &viewers{Runner: r}
		return Injection{Lasts: r.between(viewersWithin, 2*viewersWithin), Inject: Always(v.begin), Repair: v.end}
	})}
}

// begin lets the viewers come.
func (v *viewers) begin() {
	v.ctx, v.stop = context.WithCancel(context.Background())
	v.arriving.Go(func() {
		for i := range Viewers {
			v.arriving.Go(func() {
				leave, err := v.View(v.ctx, v.Tiles[i%len(v.Tiles)], sync.OnceFunc(func() { v.seen.Add(1) }))
				v.mu.Lock()
				defer v.mu.Unlock()
				if err != nil {
					v.errs = append(v.errs, err)
				}
				if leave != nil {
					v.leaves = append(v.leaves, leave)
				}
			})
			if !wait.For(v.ctx, viewersWithin/Viewers) {
				return
			}
		}
	})
}

// end waits until every viewer has seen its tile; then all leave.
func (v *viewers) end(ctx context.Context) error {
	err := Until(ctx, "every viewer has seen its tile", func() bool { return v.seen.Load() == Viewers })
	v.stop()
	v.arriving.Wait()
	for _, leave := range v.leaves {
		leave()
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("%d of %d have: %w", v.seen.Load(), Viewers, err), errors.Join(v.errs...))
	}
	return err
}
