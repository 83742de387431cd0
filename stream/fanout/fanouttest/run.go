// Package fanouttest is the contract of package fanout as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) {
//		fanouttest.Run(t, func(t *testing.T) fanouttest.Backend { return newBackend(t) })
//	}
//
// The tests use random tiles, so that back ends may share servers with other tests. They need a fabric
// that works: nothing here breaks connections, which is the back end's own to test. Random ones print
// their seed; set TILEFENCE_SEED to it to run them again.
package fanouttest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
	"github.com/tilefence/tilefence/stream/fanout"
)

// patience is how long a test waits for what must happen, on a slow machine under load.
const patience = time.Minute

// burst is how many messages a test publishes before it waits for them to arrive. A back end under test
// must buffer this many for each subscription without loss.
const burst = 64

// Backend is one fabric: whatever Publisher sends, Subscriber receives.
type Backend struct {
	Publisher  fanout.Publisher
	Subscriber fanout.Subscriber

	// HintPublisher and HintSubscriber are the same for wake hints. Others may use the same channels.
	HintPublisher  fanout.HintPublisher
	HintSubscriber fanout.HintSubscriber

	// Dropped returns how many messages were lost to slow subscriptions.
	Dropped func() uint64
}

// Run tests the back end that open opens. open is called once a test; it registers its own clean-up with
// t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, test := range []struct {
		name string
		run  func(t *testing.T, b *bench)
	}{
		{"DeliversUnaltered", deliversUnaltered},
		{"Order", order},
		{"SubscribeThenPublish", subscribeThenPublish},
		{"Unheard", unheard},
		{"Arguments", arguments},
		{"EndedContext", endedContext},
		{"SubscriptionOutlivesContext", subscriptionOutlivesContext},
		{"StopIsFinal", stopIsFinal},
		{"StopWaitsForDeliver", stopWaitsForDeliver},
		{"Resubscribe", resubscribe},
		{"ManyTiles", manyTiles},
		{"SlowSubscriber", slowSubscriber},
		{"Concurrent", concurrent},
		{"Random", random},
		{"NoLeak", noLeak},
		{"HintsArrive", hintsArrive},
		{"HintsToEverySubscription", hintsToEverySubscription},
		{"HintsApartFromFrames", hintsApartFromFrames},
		{"HintArguments", hintArguments},
		{"HintStopIsFinal", hintStopIsFinal},
		{"HintsSlowSubscriber", hintsSlowSubscriber},
		{"HintsConcurrent", hintsConcurrent},
		{"HintsLeakNothing", hintsLeakNothing},
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, &bench{Backend: open(t), t: t}) })
	}
}

// bench is a Backend with what tests of it share.
type bench struct {
	Backend
	t *testing.T
}

// tile returns a tile no other test uses.
func (b *bench) tile() fence.TileID { return fence.TileID(rand.Uint64() | 1) }

func (b *bench) publish(messages ...fanout.Message) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	sent, err := b.Publisher.Publish(ctx, messages)
	require.NoError(b.t, err)
	require.Equal(b.t, len(messages), sent)
}

// numbered publishes messages on tile that carry the numbers from first up to, not including, end.
func (b *bench) numbered(tile fence.TileID, first, end int) {
	b.t.Helper()
	var messages []fanout.Message
	for n := first; n < end; n++ {
		messages = append(messages, fanout.Message{Tile: tile, Data: number(n)})
	}
	b.publish(messages...)
}

// subscribe returns a running subscription, which is stopped at the end of the test at the latest.
func (b *bench) subscribe(tile fence.TileID) *inbox {
	b.t.Helper()
	in := &inbox{t: b.t, changed: make(chan struct{}, 1)}
	in.stop = b.subscribeFunc(tile, in.deliver)
	return in
}

func (b *bench) subscribeFunc(tile fence.TileID, deliver func([]byte)) func() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	stop, err := b.Subscriber.Subscribe(ctx, tile, deliver)
	require.NoError(b.t, err)
	b.t.Cleanup(stop)
	return stop
}

// inbox keeps what a subscription received.
type inbox struct {
	t       *testing.T
	stop    func()
	changed chan struct{}

	mu  sync.Mutex
	got [][]byte
}

func (in *inbox) deliver(data []byte) {
	in.mu.Lock()
	in.got = append(in.got, data)
	in.mu.Unlock()
	wait.Wake(in.changed)
}

func (in *inbox) all() [][]byte {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.got[:len(in.got):len(in.got)]
}

// await waits until n messages have arrived, and fails if more did.
func (in *inbox) await(n int) [][]byte {
	in.t.Helper()
	timeout := time.After(patience)
	for {
		got := in.all()
		if len(got) >= n {
			require.Len(in.t, got, n)
			return got
		}
		select {
		case <-in.changed:
		case <-timeout:
			in.t.Fatalf("%d of %d messages arrived", len(got), n)
		}
	}
}

// awaitNumbers waits for exactly the numbers from 0 up to, not including, n, in order.
func (in *inbox) awaitNumbers(n int) {
	in.t.Helper()
	for i, data := range in.await(n) {
		require.Equal(in.t, i, numberOf(data))
	}
}

func number(n int) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

func numberOf(data []byte) int { return int(binary.BigEndian.Uint64(data)) }

func noLeak(t *testing.T, b *bench) {
	tile := b.tile()
	b.numbered(tile, 0, 1) // a back end's lasting connections may start with their first use
	b.subscribe(b.tile()).stop()
	before := goleak.IgnoreCurrent()
	var inboxes []*inbox
	for range 20 {
		inboxes = append(inboxes, b.subscribe(tile))
	}
	b.numbered(tile, 0, burst)
	for _, in := range inboxes {
		in.awaitNumbers(burst)
		in.stop()
	}
	goleak.VerifyNone(t, before)
}

func fill(size int, salt byte) []byte {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i)*7 + salt
	}
	return data
}

func describe(i int) string { return fmt.Sprintf("message %d", i) }
