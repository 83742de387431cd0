package relay

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/socket"
)

// TestDuesOfThoseWhoLeft: a client that subscribes and leaves again and again, and reads slowly, owes nothing.
func TestDuesOfThoseWhoLeft(t *testing.T) {
	c := still()
	cfg, err := c.withDefaults()
	require.NoError(t, err)
	h := newHub(tileA, &cfg, &counters{}, func(*hub) bool { return true })
	q := &queue{}
	q.init(10, 1000)
	for range 10_000 {
		s := &subscription{h: h, out: q}
		require.True(t, s.join())
		s.leave()
	}
	require.LessOrEqual(t, len(q.dues), 1)
}

// TestAnIdleQueueIsSmall: nothing is left of the room that two bursts in a row took.
func TestAnIdleQueueIsSmall(t *testing.T) {
	q := &queue{}
	q.init(256, 1<<20)
	burst := func() {
		for range 200 {
			require.True(t, q.push([]byte("x")))
		}
	}
	burst()
	a, _, _ := q.next(nil)
	burst() // while the first is being written
	clear(a)
	q.written()
	b, _, _ := q.next(a)
	clear(b)
	q.written()
	_, _, what := q.next(b)
	require.Equal(t, nextWait, what)
	require.LessOrEqual(t, cap(q.frames), fewFrames)
}

// TestSeveralTilesInOneWrite: what several tiles bring within 10 ms is one write, and no frame waits longer.
// A client of one tile, or of a queue with coalesce off, is written to at once.
func TestSeveralTilesInOneWrite(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		tiles    int
		coalesce time.Duration
		writes   int
		waits    time.Duration // of a frame, at most
	}{
		"several": {7, 10 * ms, 1, 10 * ms}, "one": {1, 10 * ms, 7, 0}, "off": {7, 1, 7, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queue{coalesce: c.coalesce, pool: socket.NewWritePool()}
				q.init(256, 1<<20)
				type write struct {
					at     time.Time
					frames int
				}
				wrote := make(chan write, 7)
				q.start(func() func() {
					for {
						taken, _, what := q.next(nil)
						if what == nextWait {
							return nil
						}
						wrote <- write{time.Now(), len(taken)}
						q.written()
					}
				})()
				q.watches(c.tiles)
				for range 3 { // ticks
					began := time.Now()
					for range 7 {
						require.True(t, q.push([]byte("x")))
						time.Sleep(ms)
					}
					time.Sleep(500 * ms)
					require.Len(t, wrote, c.writes)
					frames := 0
					for range c.writes {
						w := <-wrote
						require.LessOrEqual(t, w.at.Sub(began), time.Duration(frames)*ms+c.waits)
						frames += w.frames
					}
					require.Equal(t, 7, frames)
				}
				q.writers.Wait()
			})
		})
	}
}
