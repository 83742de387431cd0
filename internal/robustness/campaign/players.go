//go:build unix

package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/game"
	"github.com/tilefence/tilefence/relay/session"
)

// nameOf is the header in which a player says who it is.
const nameOf = "X-Player"

var players = []string{"player-0", "player-1"}

// authenticate believes what a player says of itself.
func authenticate(r *http.Request) (session.Identity, error) {
	return session.Identity{Actor: r.Header.Get(nameOf)}, nil
}

// play lets a player act through one gateway after another, until the clients end.
func (t *traffic) play(ctx context.Context, b *game.Bank, name string, seed uint64, gateways []string) {
	t.wg.Go(func() {
		p := &player{bank: b, name: name, gateways: gateways, rng: rand.New(rand.NewPCG(seed, 0))}
		defer p.leave()
		for n := 1; !t.ending.Load() && ctx.Err() == nil; n++ {
			id := t.tiles[p.rng.IntN(len(t.tiles))]
			p.act(ctx, gatewayws.Request{Tile: id, Kind: admission.Act, Action: fmt.Sprintf("%s-%d", name, n),
				Asset: game.Coin, Cost: 1})
			time.Sleep(thinkMax + time.Duration(p.rng.Int64N(int64(thinkMax))))
		}
	})
}

// player is a client of gateways.
type player struct {
	bank     *game.Bank
	name     string
	gateways []string
	rng      *rand.Rand
	client   *gatewayws.Client
}

// act sends an action until it has an outcome, and now and then once more.
func (p *player) act(ctx context.Context, r gatewayws.Request) {
	deadline := time.Now().Add(actionTime)
	again := p.rng.IntN(20) == 0
	for ctx.Err() == nil && time.Now().Before(deadline) {
		if p.client == nil && !p.join(ctx) {
			time.Sleep(thinkMax)
			continue
		}
		attempt, cancel := context.WithTimeout(ctx, 2*attemptTime)
		answer, err := p.client.Do(attempt, r)
		cancel()
		var refused *gatewayws.Error
		switch {
		case err == nil:
			p.bank.Tell(r.Action, answer.Outcome)
			if !again {
				return
			}
			again = false
		case errors.As(err, &refused) && !refused.Retryable:
			return // it is too old to be sent again: a sweep settles it
		case errors.As(err, &refused):
			time.Sleep(max(thinkMin, min(refused.RetryAfter, thinkMax)))
		default:
			p.leave()
		}
	}
}

// join connects to some gateway.
func (p *player) join(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, attemptTime)
	defer cancel()
	client, err := gatewayws.Dial(ctx, "ws://"+p.gateways[p.rng.IntN(len(p.gateways))],
		&gatewayws.DialConfig{Header: http.Header{nameOf: {p.name}}})
	if err == nil {
		p.client = client
	}
	return err == nil
}

func (p *player) leave() {
	if p.client != nil {
		_ = p.client.Close()
		p.client = nil
	}
}

// settled returns nil when no action is open. An audit reads everything, so there is a pause after one that found some.
func (r *run) settled(ctx context.Context) error {
	err := r.bank.Settled(ctx)
	if err != nil {
		time.Sleep(100 * time.Millisecond)
	}
	return err
}

// everyTile lets every watcher watch every tile.
func everyTile(context.Context, session.Identity, fence.TileID, fence.AreaSet) error { return nil }
