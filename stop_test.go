package tilefence_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/tile"
)

// slow is a server that ends so long after its context, and notes when it was stopped.
type slow struct {
	takes   time.Duration
	stopped time.Duration
	began   time.Time
}

func (s *slow) Run(ctx context.Context) error {
	<-ctx.Done()
	s.stopped = time.Since(s.began)
	time.Sleep(s.takes)
	return nil
}

// TestTheEndIsBounded: a process whose servers hang ends within StopTimeout, each server has its turn before, and the
// error says which did not end. Servers that are slow and not too slow have the time that others leave.
func TestTheEndIsBounded(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		takes   [5]time.Duration
		lasts   time.Duration
		stopped [5]time.Duration
		fails   bool
	}{
		"all is well": {},
		"one is slow": {takes: [5]time.Duration{1: 15 * time.Second}, lasts: 15 * time.Second,
			stopped: [5]time.Duration{2: 15 * time.Second, 3: 15 * time.Second, 4: 15 * time.Second}},
		"one hangs": {takes: [5]time.Duration{1: time.Minute}, lasts: 25 * time.Second, fails: true,
			stopped: [5]time.Duration{2: 19 * time.Second, 3: 19 * time.Second, 4: 19 * time.Second}},
		"all hang": {takes: [5]time.Duration{time.Minute, time.Minute, time.Minute, time.Minute, time.Minute},
			lasts: 25 * time.Second, fails: true,
			stopped: [5]time.Duration{1: 17 * time.Second, 2: 19 * time.Second, 3: 21 * time.Second,
				4: 23 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				servers, all := [5]*slow{}, make([]tilefence.Server, 5)
				for i := range servers {
					servers[i] = &slow{takes: test.takes[i], began: began}
					all[i] = servers[i]
				}
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				err := tilefence.Run(ctx, all...)
				assert.Equal(t, test.lasts, time.Since(began))
				assert.LessOrEqual(t, time.Since(began), tilefence.StopTimeout)
				if test.fails {
					require.ErrorIs(t, err, tilefence.ErrUnfinished)
				} else {
					require.NoError(t, err)
				}
				time.Sleep(time.Minute) // what hung ends
				synctest.Wait()
				for i, s := range servers {
					assert.Equal(t, test.stopped[i], s.stopped, "server %d", i)
				}
			})
		})
	}
}

// TestAnEndThatReleasedNothingSaysSo: the back ends, or the coordination store alone, answer nothing when a tile server
// stops, although another server would take its tiles. It stops in time, and the error names the tiles that it holds.
func TestAnEndThatReleasedNothingSaysSo(t *testing.T) {
	t.Parallel()
	for name, cut := range map[string]func(*faultinject.Line, tilefence.Backends) tilefence.Backends{
		"no back end":           (*faultinject.Line).Process,
		"no coordination store": (*faultinject.Line).Coordination,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			line, b := faultinject.New(), embedded(t)
			cfg := tilefence.TileServerConfig{HandOverTimeout: 100 * time.Millisecond}
			cfg.Host.Tile.DrainTimeout = 100 * time.Millisecond
			s, peer := tileServer(t, cut(line, b), cfg), tileServer(t, b, tilefence.TileServerConfig{})
			require.NoError(t, s.Own(plaza, harbour))
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			start(t, peer)
			await(t, s, plaza)
			await(t, s, harbour)
			line.Set(faultinject.Cut)
			began := time.Now()
			stop()
			err := <-ended
			require.Less(t, time.Since(began), 20*time.Second)
			var unreleased *tilefence.UnreleasedError
			require.ErrorAs(t, err, &unreleased)
			require.ErrorIs(t, err, tile.ErrUnreleased)
			require.Equal(t, []fence.TileID{plaza, harbour}, unreleased.Tiles)
			require.Equal(t, s.Contact(), unreleased.Contact)
		})
	}
}
