package redisfanout

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestWatchTellsOfShortLosses: a channel that is lost and in force again before anybody looks was lost all
// the same.
func TestWatchTellsOfShortLosses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSession(&Fanout{})
		defer s.cancel()
		c := s.retain("a", func(string) {})
		rise := func() { // as conn.confirm does; s.mu is held
			c.inForce = true
			close(c.up)
		}
		ups := make(chan bool, 100)
		quit := make(chan struct{})
		go watch(s, c, quit, func(up bool) { ups <- up })
		synctest.Wait()
		require.Empty(t, ups)
		s.mu.Lock()
		rise()
		s.mu.Unlock()
		synctest.Wait()
		require.True(t, <-ups)

		s.mu.Lock()
		for range 2 {
			c.unplace(errors.New("lost"), time.Time{})
			rise()
		}
		s.mu.Unlock()
		synctest.Wait()
		require.False(t, <-ups)
		require.True(t, <-ups)

		s.mu.Lock()
		c.unplace(errors.New("lost"), time.Time{})
		s.mu.Unlock()
		synctest.Wait()
		require.False(t, <-ups)
		require.Empty(t, ups)
		close(quit)
	})
}
