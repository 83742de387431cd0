package admission_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// starting is a world that answers when the test says so.
type starting struct {
	*world
	waiting chan func()
}

func (s *starting) Start(ctx context.Context, contact string, in tile.Intent, done func(tile.Result, error)) {
	s.waiting <- func() { done(s.Forward(ctx, contact, in)) }
}

// decision is what a movement came to.
type decision struct {
	tile.Result
	err  error
	done admission.DoneInfo
}

// startMove starts a movement and has it answered. waits is what decided was told.
func (s *starting) startMove(ctx context.Context, g *admission.Gateway, in tile.Intent) (d decision, waits bool) {
	calls := 0
	g.StartMove(ctx, in, func(finish func() (tile.Result, error), w bool) {
		calls++
		waits = w
		d.Result, d.err = finish()
	})
	select {
	case answer := <-s.waiting:
		if calls != 0 {
			d.err = errors.New("decided before it was answered")
			return d, waits
		}
		answer()
	default: // it was not sent
	}
	if calls != 1 {
		d.err = errors.New("not decided once")
	}
	return d, waits
}

// TestAStartedMovementIsDecidedAsMoveDoes, whether the Forwarder has Start or not.
func TestAStartedMovementIsDecidedAsMoveDoes(t *testing.T) {
	move := tile.Intent{Tile: here, Actor: "ann", Body: []byte("north")}
	moved := func(to string, epoch fence.Epoch) error {
		return &tile.RedirectError{Tile: here, Epoch: epoch, Contact: to}
	}
	for name, c := range map[string]struct {
		in      tile.Intent
		answers []error
		down    bool
		waits   bool
		want    stream.Outcome // zero: an error
	}{
		"applied":    {in: move, want: stream.Applied},
		"malformed":  {in: tile.Intent{Tile: here, Actor: "ann", ActionID: "x"}},
		"declined":   {in: tile.Intent{Tile: here, Actor: "ann", Body: []byte("wall")}},
		"overloaded": {in: move, answers: []error{tile.ErrOverloaded}},
		"no outcome": {in: move, answers: []error{nil}},
		"gone":       {in: move, down: true},
		"redirected": {in: move, answers: []error{moved("b", 2)}, waits: true, want: stream.Applied},
		"unresolved": {in: move, answers: []error{&tile.UnresolvedError{Tile: here}}, waits: true},
		"moved twice": {in: move, answers: []error{moved("b", 2), moved("c", 3)}, waits: true,
			want: stream.Redirected},
		"crossed":         {in: move, answers: []error{crossed(here, there)}, waits: true, want: stream.Applied},
		"crossed to none": {in: move, answers: []error{crossed(here, there), tile.ErrOverloaded}, waits: true},
	} {
		t.Run(name, func(t *testing.T) {
			var got []decision
			for _, how := range []string{"move", "waiting", "started"} {
				var done []admission.DoneInfo
				cfg := &admission.GatewayConfig{Unlimited: true,
					CheckMove: func(_ context.Context, in tile.Intent) error {
						return map[string]error{"wall": errors.New("a wall")}[string(in.Body)]
					},
					Hooks: admission.Hooks{Done: func(info admission.DoneInfo) { done = append(done, info) }}}
				r := newRig(t, cfg)
				r.world.answers, r.world.down = append([]error(nil), c.answers...), c.down
				s := &starting{r.world, make(chan func(), 1)}
				var d decision
				switch how {
				case "move":
					d.Result, d.err = r.gate.Move(t.Context(), c.in)
				case "waiting":
					d, _ = s.startMove(t.Context(), r.gate, c.in)
				default:
					var err error
					r.gate, err = admission.NewGateway(r.ledger, r.router, s, admission.ClientPrices, cfg)
					require.NoError(t, err)
					var waits bool
					d, waits = s.startMove(t.Context(), r.gate, c.in)
					assert.Equal(t, c.waits, waits)
				}
				require.Len(t, done, 1)
				d.done, d.done.Took = done[0], 0
				got = append(got, d)
			}
			assert.Equal(t, c.want, got[0].Outcome)
			assert.Equal(t, c.want == 0, got[0].err != nil)
			assert.Equal(t, got[0], got[1])
			assert.Equal(t, got[0], got[2])
		})
	}
}

// TestStartedMovementsTakeNoGoroutine while they wait for their tile. Each has an answer by ForwardTimeout.
func TestStartedMovementsTakeNoGoroutine(t *testing.T) {
	const n = 3000
	queued := make(chan func(tile.Result, error), 2*n)
	h, err := tilehttp.NewHandler(tilehttp.SubmitterFunc(nil), &tilehttp.HandlerConfig{
		Queue: func(_ context.Context, _ tile.Intent, answered func(tile.Result, error)) error {
			queued <- answered
			return nil
		}})
	require.NoError(t, err)
	server := httptest.NewServer(h)
	defer server.Close()
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	r := newRig(t, nil)
	r.world.owner = server.Listener.Addr().String()
	r.gate, err = admission.NewGateway(r.ledger, r.router, client, admission.ClientPrices,
		&admission.GatewayConfig{Unlimited: true, ForwardTimeout: 5 * time.Second})
	require.NoError(t, err)
	results := make(chan error, n)
	start := func() {
		r.gate.StartMove(t.Context(), tile.Intent{Tile: here, Actor: "ann"},
			func(finish func() (tile.Result, error), _ bool) {
				_, err := finish()
				results <- err
			})
	}
	start() // makes the connection
	(<-queued)(tile.Result{Outcome: stream.Applied}, nil)
	require.NoError(t, <-results)
	before := runtime.NumGoroutine()
	for range n {
		start()
	}
	waittest.Until(t, func() bool { return len(queued) == n }, 10*time.Second, time.Millisecond)
	assert.LessOrEqual(t, runtime.NumGoroutine(), before+4, "of the test's own tools")
	for range n / 2 {
		(<-queued)(tile.Result{Outcome: stream.Applied}, nil)
	}
	applied, expired := 0, 0
	for range n {
		switch err := <-results; {
		case err == nil:
			applied++
		case errors.Is(err, context.DeadlineExceeded) && errors.Is(err, fence.ErrUnknownOutcome):
			expired++
		default:
			require.NoError(t, err)
		}
	}
	assert.Equal(t, n/2, applied)
	assert.Equal(t, n/2, expired)
}
