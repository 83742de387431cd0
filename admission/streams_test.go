package admission_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// breakable is a tile server whose connections a test can break, and which can lose the tile to another.
type breakable struct {
	host
	listener *faultinject.Listener
	server   *http.Server
	intents  *tilehttp.Handler
}

func startBreakable(t *testing.T, ctx context.Context, seams tile.Seams) *breakable {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	b := &breakable{host: host{contact: l.Addr().String(), ended: make(chan error, 1)},
		listener: &faultinject.Listener{Listener: l}}
	b.processor, err = tile.New(here, b.contact, seams, &spells{},
		&tile.Config{TickInterval: 5 * time.Millisecond, TakeOver: true})
	require.NoError(t, err)
	b.intents, err = tilehttp.NewHandler(b.processor, nil)
	require.NoError(t, err)
	b.server = &http.Server{Handler: b.intents, ReadHeaderTimeout: time.Second}
	go func() { _ = b.server.Serve(b.listener) }()
	go func() { b.ended <- b.processor.Run(ctx) }()
	waittest.Until(t, func() bool { return b.processor.Status().State == tile.Serving }, 10*time.Second,
		time.Millisecond)
	return b
}

// TestMoneyWhenConnectionsBreak: players pay for actions while the connections to the tile servers break and the tile
// moves between two of them. Every action that is repeated under its ID until it has an outcome is paid for once, and
// has happened once if it was applied.
func TestMoneyWhenConnectionsBreak(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	coordination := memfence.New()
	seams := tile.Seams{Authority: memfence.NewAuthority(), Store: coordination, Log: memstream.New(coordination)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r := newRig(t, nil)
	router, err := route.NewRouter(new(route.Table), coordination, nil)
	require.NoError(t, err)
	client, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer client.Close()
	gate, err := admission.NewGateway(r.ledger, router, client, admission.ClientPrices,
		&admission.GatewayConfig{Unlimited: true, ForwardTimeout: time.Second})
	require.NoError(t, err)
	const players, each = 8, 20
	for p := range players {
		r.credit(fmt.Sprint("p", p), each)
	}
	servers := []*breakable{startBreakable(t, ctx, seams)}

	var playing sync.WaitGroup
	outcomes := sync.Map{} // action: its outcome
	decided := make(chan struct{}, players*each)
	for p := range players {
		playing.Go(func() {
			for i := range each {
				a := admission.Action{ID: fmt.Sprint(p, "/", i), Actor: fmt.Sprint("p", p), Asset: "card", Cost: 1,
					Tile: here, Body: fmt.Append(nil, p, "/", i)}
				for {
					art, err := gate.Act(ctx, a)
					if err == nil {
						outcomes.Store(a.ID, art)
						decided <- struct{}{}
						break
					}
					if !errors.Is(err, admission.ErrPending) {
						t.Errorf("action %s: %v", a.ID, err)
						return
					}
					time.Sleep(time.Millisecond)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { playing.Wait(); close(done) }()
	moves, until := 0, 1 // the next cut is so many outcomes away: however fast the play is, it is cut
	for playing := true; playing; {
		select {
		case <-done:
			playing = false
		case <-decided:
			if until--; until > 0 {
				continue
			}
			until = 1 + rng.IntN(2*players)
			time.Sleep(time.Duration(rng.Int64N(int64(5 * time.Millisecond)))) // anywhere between two ticks
			last := servers[len(servers)-1]
			if moves < 3 && rng.IntN(6) == 0 {
				moves++
				servers = append(servers, startBreakable(t, ctx, seams))
				var superseded *tile.SupersededError
				require.ErrorAs(t, <-last.ended, &superseded)
			} else {
				last.listener.Cut()
			}
		}
	}
	cast := servers[len(servers)-1].cast(t)
	spent := 0
	outcomes.Range(func(id, art any) bool {
		a := art.(admission.Artifact)
		want := 1
		if a.Outcome != stream.Applied {
			want = 0
		}
		if !a.Refunded {
			spent++
		}
		assert.Equal(t, want, cast[id.(string)], "action %s: %s", id, a.Outcome)
		return true
	})
	left := admission.Amount(0)
	for p := range players {
		left += r.balance(fmt.Sprint("p", p))
	}
	assert.EqualValues(t, players*each-spent, left)
	assert.Positive(t, client.Stats().Broken)
	t.Logf("%+v, moves %d", client.Stats(), moves)

	client.Close()
	cancel()
	for _, s := range servers {
		if s == servers[len(servers)-1] {
			<-s.ended
		}
		require.NoError(t, s.intents.Drain(t.Context()))
		require.NoError(t, s.server.Close())
	}
}
