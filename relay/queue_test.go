package relay

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestDuesOfThoseWhoLeft: a client that subscribes and leaves again and again, and reads slowly, owes nothing.
func TestDuesOfThoseWhoLeft(t *testing.T) {
	c := still()
	c.Public = true
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
