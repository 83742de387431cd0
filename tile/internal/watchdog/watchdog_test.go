package watchdog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/tile/internal/watchdog"
)

func nothing() {}

func TestEachCallHasItsOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var checks []time.Duration
		w := watchdog.New(time.Second, func(took time.Duration) bool {
			checks = append(checks, took)
			return true
		})
		for range 2 {
			w.Start(nothing)
			time.Sleep(2500 * time.Millisecond)
			w.Stop(nothing)
			time.Sleep(5 * time.Second) // no call: no check
		}
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second, time.Second, 2 * time.Second}, checks)
	})
}

func TestACallThatIsGivenUpDoesNotGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watchdog.New(time.Second, func(took time.Duration) bool { return took < 3*time.Second })
		began, ended := time.Now(), make(chan struct{})
		var returned, reset bool
		go func() {
			defer close(ended)
			w.Start(nothing)
			time.Sleep(time.Minute)
			w.Stop(func() { reset = true })
			returned = true
		}()
		<-w.Hung()
		require.Equal(t, 3*time.Second, time.Since(began))
		w.Inspect(func(took time.Duration) { require.Equal(t, 3*time.Second, took) })
		<-ended
		require.False(t, returned || reset)
	})
}
