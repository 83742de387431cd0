package memfanout_test

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/fanouttest"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	fanouttest.Run(t, func(*testing.T) fanouttest.Backend {
		b := memfanout.New()
		return fanouttest.Backend{Publisher: b, Subscriber: b, HintPublisher: b, HintSubscriber: b,
			Dropped: func() uint64 { return b.Stats().Dropped }}
	})
}

// TestBounds checks both limits of a buffer exactly: synctest makes "deliver is blocked" observable.
func TestBounds(t *testing.T) {
	for _, test := range []struct {
		name            string
		messages, bytes int
		size            int
		kept, dropped   int
	}{
		{"messages", 3, 0, 10, 3, 7},
		{"bytes", 0, 35, 10, 3, 7},
		{"one larger than the buffer", 0, 5, 10, 1, 9},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, err := memfanout.Sized(test.messages, test.bytes)
				require.NoError(t, err)
				release := make(chan struct{})
				got := 0
				stop, err := b.Subscribe(t.Context(), 7, func([]byte) {
					<-release
					got++
				})
				require.NoError(t, err)
				publish := func(n int) {
					for range n {
						sent, err := b.Publish(t.Context(), []fanout.Message{{Tile: 7, Data: make([]byte, test.size)}})
						require.NoError(t, err)
						require.Equal(t, 1, sent, "a message lost to a slow subscriber is sent all the same")
					}
				}
				publish(1)
				synctest.Wait() // deliver holds one, the buffer is empty
				publish(10)
				require.EqualValues(t, test.dropped, b.Stats().Dropped)
				close(release)
				synctest.Wait()
				stop()
				require.Equal(t, 1+test.kept, got)
				require.Equal(t, memfanout.Stats{Published: 11, Delivered: uint64(1 + test.kept),
					Dropped: uint64(test.dropped)}, b.Stats())
			})
		})
	}
}

func TestWorld(t *testing.T) {
	t.Parallel()
	var broker *memfanout.Broker
	fencetest.RunWorld(t, true, func(_ *testing.T, w fence.World) fence.WorldKeeper {
		if broker == nil || !w.ID.IsZero() { // a known ID begins a test
			broker = memfanout.New()
		}
		return broker
	})
}
