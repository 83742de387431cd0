package dynamocheckpoint_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/seed"
)

// TestRacingWithFaults lets writers, each a process of its own, race on one tile while requests are lost,
// answers are lost, manifests arrive late, and collectors and readers are at work all the time. A reader
// must never meet a damaged checkpoint or one that went back, and in the end no orphan is left.
func TestRacingWithFaults(t *testing.T) {
	t.Parallel()
	source := seed.Of(t)
	const writers, writes = 3, 30
	table := newTable(t)
	wire := &badWire{client: newClient(t, nil), rng: rand.New(rand.NewPCG(source, 99))}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	var background errgroup.Group
	background.Go(func() error { return watch(ctx, newSmall(t, table, nil)) })
	background.Go(func() error { return collect(ctx, newSmall(t, table, nil)) })

	var group errgroup.Group
	for w := range writers {
		rng := rand.New(rand.NewPCG(source, uint64(w)))
		st := newSmall(t, table, wire.fault)
		group.Go(func() error { return write(ctx, st, rng, writes) })
	}
	err := group.Wait()
	wire.late.Wait()
	cancel()
	require.NoError(t, background.Wait())
	require.NoError(t, err)

	st := newSmall(t, table, nil)
	last := snapshot(9, 1000, 2500)
	require.NoError(t, st.Put(t.Context(), tile, last))
	holds(t, st, last)
	require.Len(t, parts(t, table), items(2500))
}

// write presents positions of one climbing history, in no order, some twice.
func write(ctx context.Context, st *dynamocheckpoint.Store, rng *rand.Rand, writes int) error {
	for range writes {
		seq := fence.Seq(1 + rng.IntN(100))
		s := snapshot(fence.Epoch(1+seq/25), seq, []int{50, 2500, 4500}[rng.IntN(3)])
		for range 1 + rng.IntN(2) {
			err := st.Put(ctx, tile, s)
			older, refused := asType[*checkpoint.OlderError](err)
			_, injected := asType[*fence.StoreError](err)
			switch {
			case err == nil || injected:
			case refused && older.Covers():
			default:
				return err
			}
		}
	}
	return nil
}

// badWire loses requests and answers, and delivers some manifests late.
type badWire struct {
	client *dynamodb.Client
	late   sync.WaitGroup

	mu  sync.Mutex
	rng *rand.Rand
}

func (w *badWire) fault(_ context.Context, input any, send func() error) error {
	w.mu.Lock()
	dice, delay := w.rng.IntN(10), time.Duration(w.rng.IntN(30))*time.Millisecond
	w.mu.Unlock()
	switch {
	case dice == 0:
		return errKilled
	case dice == 1 && isManifest(input):
		_ = send()
		return errKilled
	case dice == 2 && isManifest(input):
		_ = send()
		return &requestError{errKilled} // the SDK tries again
	case dice <= 4 && isManifest(input):
		w.late.Go(func() {
			time.Sleep(delay)
			_, _ = w.client.PutItem(context.Background(), input.(*dynamodb.PutItemInput))
		})
		return errKilled
	case dice == 5:
		return &types.ProvisionedThroughputExceededException{}
	}
	return send()
}

func watch(ctx context.Context, st *dynamocheckpoint.Store) error {
	var last fence.Position
	for {
		s, found, err := st.Get(ctx, tile)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the test is over
		}
		switch {
		case err != nil:
			return fmt.Errorf("reader: %w", err)
		case found && s.Position != last && !checkpoint.Supersedes(s.Position, last):
			return fmt.Errorf("the checkpoint went from %s back to %s", last, s.Position)
		}
		last = s.Position
	}
}

func collect(ctx context.Context, st *dynamocheckpoint.Store) error {
	for {
		_, err := st.Collect(ctx, tile)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the test is over
		}
		if err != nil {
			return fmt.Errorf("collector: %w", err)
		}
		time.Sleep(time.Millisecond)
	}
}
