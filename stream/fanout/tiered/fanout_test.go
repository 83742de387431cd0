package tiered_test

import (
	"context"
	"log/slog"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/fanout/fanouttest"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	fanouttest.Run(t, func(t *testing.T) fanouttest.Backend {
		ordinary, broker := memfanout.New(), memfanout.New()
		open := func() *tiered.Fanout {
			// No tile moves, however slow the machine is: see TestConformanceOnServers.
			f, err := tiered.New(ordinary, broker, &tiered.Config{Logger: slog.New(slog.DiscardHandler),
				Bytes: math.MaxInt32})
			require.NoError(t, err)
			t.Cleanup(f.Close)
			return f
		}
		pub, sub := open(), open()
		return fanouttest.Backend{Publisher: pub, Subscriber: sub, HintPublisher: pub, HintSubscriber: sub,
			Dropped: func() uint64 { return ordinary.Stats().Dropped }}
	})
}

func TestArgumentsOfNew(t *testing.T) {
	tier := memfanout.New()
	for name, err := range map[string]error{
		"no ordinary tier": errOf(tiered.New(nil, tier, nil)),
		"no broker":        errOf(tiered.New(tier, nil, nil)),
		"negative bound":   errOf(tiered.New(tier, tier, &tiered.Config{Subscribers: -1})),
		"negative bytes":   errOf(tiered.New(tier, tier, &tiered.Config{Bytes: -1})),
	} {
		require.ErrorIs(t, err, fence.ErrInvalidArgument, name)
	}
	require.NoError(t, errOf(tiered.New(tier, memfanout.New(), nil)))
}

func errOf(_ *tiered.Fanout, err error) error { return err }

// kept is a tier whose servers keep a world, or cannot be asked for it.
type kept struct {
	*memfanout.Broker
	found fence.World
	err   error
}

func (k *kept) EnterWorld(context.Context, fence.World) (fence.World, error) { return k.found, k.err }

// TestTheWorldOfTwoTiers: each tier refuses another world; a broker that keeps no ID, or cannot be asked, takes nothing
// from the answer of the ordinary tier, without which nothing begins.
func TestTheWorldOfTwoTiers(t *testing.T) {
	t.Parallel()
	w := fence.World{Name: "game", ID: fence.NewWorldID()}
	away := &fence.StoreError{Op: "enter world", Outcome: fence.ErrNotApplied, Err: errDown}
	foreign := w.Compare("NATS", "subject", fence.World{Name: "game", ID: fence.NewWorldID()})
	for name, c := range map[string]struct{ ordinary, broker, want error }{
		"both":            {},
		"broker away":     {broker: away},
		"ordinary away":   {ordinary: away, want: away},
		"foreign broker":  {broker: foreign, want: foreign},
		"foreign, broken": {ordinary: foreign, broker: away, want: foreign},
	} {
		f, err := tiered.New(&kept{Broker: memfanout.New(), found: w, err: c.ordinary},
			&kept{Broker: memfanout.New(), found: fence.World{Name: "game"}, err: c.broker}, settings())
		require.NoError(t, err)
		found, err := f.EnterWorld(t.Context(), w)
		f.Close()
		if c.want != nil {
			require.Equal(t, c.want, err, name)
			continue
		}
		require.NoError(t, err, name)
		require.Equal(t, w, found, name)
	}
}
