package watch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
)

func TestWatchBoundsWhatTheOwnerCanHavePlayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ticks := func(from, to time.Time) fence.Tick { return fence.Tick(to.Sub(from) / time.Second) }
		var w Owner
		_, ok := w.Played(0, ticks)
		assert.False(t, ok, "nothing was seen")
		w.Saw(fence.Owner{Epoch: 3, Contact: "a:1", Tick: 100}, time.Minute)
		time.Sleep(10 * time.Second)
		n, ok := w.Played(90, ticks)
		assert.True(t, ok)
		assert.Equal(t, fence.Tick(20), n)
		w.Saw(fence.Owner{}, time.Minute)
		time.Sleep(time.Hour)
		n, _ = w.Played(90, ticks)
		assert.Equal(t, fence.Tick(20), n, "an owner whose hash is gone acknowledges nothing")
		_, ok = w.Played(101, ticks)
		assert.False(t, ok, "the durable state is later than what was seen")
		assert.Equal(t, fence.Epoch(3), w.Epoch())
		w.Rival = fence.Grant{Epoch: 5, Contact: "b:1"}
		assert.Equal(t, "b:1", w.Latest().Contact)
	})
}

func TestSilenceIsNoLongerThanItWasWatched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w Owner
		w.Saw(fence.Owner{Epoch: 1}, time.Second)
		for _, gap := range []time.Duration{time.Second, time.Hour, time.Second} {
			time.Sleep(gap)
			w.Saw(w.Last, time.Second)
		}
		assert.Equal(t, 3*time.Second, w.Silent, "the follower was stopped for an hour")
		w.Failed()
		time.Sleep(time.Second)
		w.Saw(w.Last, time.Second)
		assert.Equal(t, 3*time.Second, w.Silent, "the store did not answer")
		w.Saw(fence.Owner{Epoch: 2}, time.Second)
		assert.Zero(t, w.Silent)
	})
}
