package tilehttp_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// deeds is a game that counts how often each deed was done. An intent is a deed.
type deeds struct{ done map[string]int }

func (d *deeds) Restore([]byte) error { d.done = map[string]int{}; return nil }

func (d *deeds) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for _, in := range intents {
		events, out = append(events, in.Body), append(out, stream.Applied)
	}
	return events, out
}

func (d *deeds) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		d.done[string(e)]++
	}
	return nil
}

func (d *deeds) Snapshot() ([]byte, error) { return nil, nil }

// fragile is a tile server whose connections break where a test says.
type fragile struct {
	tile     *tile.TileProcessor
	listener *faultinject.Listener
	contact  string

	mu            sync.Mutex
	before, after func() // called once each: before an intent is submitted, and when it is resolved
}

func (f *fragile) Submit(ctx context.Context, in tile.Intent) (tile.Result, error) {
	f.at(&f.before)
	o, err := f.tile.Submit(context.WithoutCancel(ctx), in)
	f.at(&f.after)
	return o, err
}

func (f *fragile) at(stage *func()) {
	f.mu.Lock()
	do := *stage
	*stage = nil
	f.mu.Unlock()
	if do != nil {
		do()
	}
}

func serveFragile(t *testing.T) *fragile {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	f := &fragile{listener: &faultinject.Listener{Listener: l}, contact: l.Addr().String()}
	store := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store)}
	f.tile, err = tile.New(here, f.contact, seams, &deeds{}, &tile.Config{TickInterval: 5 * time.Millisecond})
	require.NoError(t, err)
	server := &http.Server{Handler: handler(t, f), ReadHeaderTimeout: time.Second}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { assert.NoError(t, f.tile.Run(ctx)) })
	running.Go(func() { _ = server.Serve(f.listener) })
	t.Cleanup(func() {
		cancel()
		_ = server.Close()
		f.listener.Cut()
		running.Wait()
	})
	return f
}

func (f *fragile) done(t *testing.T, deed string) (n int) {
	t.Helper()
	require.NoError(t, f.tile.Inspect(t.Context(), func(r tile.Rules, _ fence.Position) { n = r.(*deeds).done[deed] }))
	return n
}

// TestConnectionBreaksAtEveryStage: the error says what may have become of the intent, a repetition gets the outcome,
// and the deed is done once.
func TestConnectionBreaksAtEveryStage(t *testing.T) {
	f := serveFragile(t)
	client := newClient(t, nil)
	do := func(id string) error {
		_, err := client.Forward(t.Context(), f.contact,
			tile.Intent{Tile: here, ActionID: id, Actor: "ann", Body: []byte(id)})
		return err
	}
	require.NoError(t, do("warm up"))

	for _, stage := range []string{"after write, before apply", "after apply, before answer"} {
		f.mu.Lock()
		if stage == "after write, before apply" {
			f.before = f.listener.Cut
		} else {
			f.after = f.listener.Cut
		}
		f.mu.Unlock()
		err := do(stage)
		require.ErrorIs(t, err, fence.ErrUnknownOutcome, stage)
		require.NotErrorIs(t, err, fence.ErrNotApplied, stage)
		require.NoError(t, do(stage))
		assert.Equal(t, 1, f.done(t, stage), stage)
	}

	// No server listens: nothing can have been written.
	f.listener.Kill()
	waittest.Until(t, func() bool { return client.Stats().Broken >= 3 }, 10*time.Second, time.Millisecond)
	err := do("before write")
	require.ErrorIs(t, err, fence.ErrNotApplied)
	require.NotErrorIs(t, err, fence.ErrUnknownOutcome)
	assert.Zero(t, f.done(t, "before write"))
}

// TestConnectionsBreakAllTheTime: an intent that is said to be not applied never is, and one with an outcome is applied
// once. Connections break while many intents are in every stage.
func TestConnectionsBreakAllTheTime(t *testing.T) {
	f := serveFragile(t)
	client := newClient(t, nil)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const callers, each = 20, 20
	var fates sync.Map // deed: the errors that its attempts met
	var calling sync.WaitGroup
	ended := make(chan struct{})
	for c := range callers {
		calling.Go(func() {
			for i := range each {
				deed := string(rune('A'+c)) + string(rune('a'+i))
				var met []error
				for {
					_, err := client.Forward(t.Context(), f.contact,
						tile.Intent{Tile: here, ActionID: deed, Body: []byte(deed)})
					met = append(met, err)
					if err == nil || i%3 == 0 { // a third is not repeated
						break
					}
				}
				fates.Store(deed, met)
			}
		})
	}
	cutting := make(chan struct{})
	go func() {
		defer close(cutting)
		for {
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(rng.Int64N(int64(40 * time.Millisecond)))):
				f.listener.Cut()
			}
		}
	}()
	calling.Wait()
	close(ended)
	<-cutting
	time.Sleep(50 * time.Millisecond) // several ticks: what was received is resolved
	fates.Range(func(deed, met any) bool {
		n := f.done(t, deed.(string))
		errs := met.([]error)
		switch {
		case errs[len(errs)-1] == nil:
			assert.Equal(t, 1, n, "%s: %v", deed, errs)
		case !slices.ContainsFunc(errs, func(err error) bool { return !errors.Is(err, fence.ErrNotApplied) }):
			assert.Zero(t, n, "%s: %v", deed, errs)
		default:
			assert.LessOrEqual(t, n, 1, "%s: %v", deed, errs)
		}
		return true
	})
	assert.Positive(t, client.Stats().Unknown)
	assert.Greater(t, client.Stats().Dialed, uint64(2))
}

// TestWhatIsWrongWithAConnectionIsNotOfTheIntent: a process that is no tile server sends bytes that cannot be read. An
// intent that was never sent is not refused as malformed for it: a gateway would end the action.
func TestWhatIsWrongWithAConnectionIsNotOfTheIntent(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{tilehttp.Subprotocol}})
		if err == nil {
			_ = conn.Write(r.Context(), websocket.MessageBinary, []byte("x"))
			_, _, _ = conn.Read(r.Context())
		}
	}))
	defer server.Close()
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	in := tile.Intent{Tile: 7, ActionID: "a", Actor: "ann"}
	for range 20 {
		_, err = client.Forward(t.Context(), server.Listener.Addr().String(), in)
		require.ErrorIs(t, err, tilehttp.ErrUnavailable)
		require.NotErrorIs(t, err, fence.ErrInvalidArgument)
	}
}
