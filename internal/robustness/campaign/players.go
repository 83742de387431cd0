package campaign

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/relay/session"
	"github.com/tilefence/tilefence/stream"
)

// What players have and pay.
const (
	coin    = "coin"
	purse   = 1_000_000 // more than a run takes
	players = 2
	nameOf  = "X-Player"
)

// authenticate believes what a player says of itself.
func authenticate(r *http.Request) (session.Identity, error) {
	return session.Identity{Actor: r.Header.Get(nameOf)}, nil
}

// price is what an action costs, whatever its player offers.
func price(_ context.Context, a admission.Action) (admission.Action, error) {
	a.Asset, a.Cost = coin, 1+admission.Amount(len(a.ID)%3)
	return a, nil
}

// bank is the ledger, as the campaign opens and audits it.
type bank struct {
	ledger *admission.AdmissionLedger
	store  admission.Store

	mu   sync.Mutex
	told map[string]stream.Outcome // by action: what its player was answered
}

func newBank(ctx context.Context, store admission.Store) (*bank, error) {
	b := &bank{store: store, told: map[string]stream.Outcome{}}
	var err error
	if b.ledger, err = admission.New(store, nil); err != nil {
		return nil, err
	}
	for i := range players {
		name := playerName(i)
		if err := b.ledger.Credit(ctx, name, coin, purse, "purse-"+name); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func playerName(i int) string { return fmt.Sprintf("player-%d", i) }

func (b *bank) tell(action string, o stream.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.told[action] = o
}

// play lets a player act through one gateway after another, until the clients end.
func (t *traffic) play(ctx context.Context, b *bank, name string, seed uint64, gateways []string) {
	t.wg.Go(func() {
		p := &player{bank: b, name: name, gateways: gateways, rng: rand.New(rand.NewPCG(seed, 0))}
		defer p.leave()
		for n := 1; !t.ending.Load() && ctx.Err() == nil; n++ {
			id := t.tiles[p.rng.IntN(len(t.tiles))]
			p.act(ctx, gatewayws.Request{Tile: id, Kind: admission.Act, Action: fmt.Sprintf("%s-%d", name, n),
				Asset: coin, Cost: 1})
			time.Sleep(thinkMax + time.Duration(p.rng.Int64N(int64(thinkMax))))
		}
	})
}

// player is a client of gateways.
type player struct {
	bank     *bank
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
			p.bank.tell(r.Action, answer.Outcome)
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

// settled returns nil when no action is open.
func (b *bank) settled(ctx context.Context) error {
	now, err := b.ledger.Now(ctx)
	if err != nil {
		return err
	}
	report, err := b.ledger.Audit(ctx, now.Add(time.Hour))
	if n := len(report.Pending); err == nil && n > 0 {
		err = fmt.Errorf("%d actions are open, the oldest is %s of tile %s, sent %d times", n,
			report.Pending[0].ActionID, report.Pending[0].Tile, report.Pending[0].Attempts)
		time.Sleep(100 * time.Millisecond) // an audit reads everything
	}
	return err
}

// record records the ledger when every action has its outcome.
func (b *bank) record(ctx context.Context, r *history.Recorder) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	err := b.store.Scan(ctx, func(record admission.Record) error {
		if a, ok := record.(admission.Artifact); ok {
			p := history.Payment{Action: a.ActionID, Cost: uint64(a.Cost), Refunded: a.Refunded,
				Outcome: named(a.Outcome), Told: named(b.told[a.ActionID])}
			if a.Reason != 0 {
				p.Reason = a.Reason.String()
			}
			r.Append(history.Record{Kind: history.Paid, Tile: a.Tile, Payment: &p})
		}
		return nil
	})
	if err != nil {
		return err
	}
	report, err := b.ledger.Audit(ctx, time.Time{})
	balance := history.Balance{Damaged: report.Damaged}
	for _, c := range report.Currencies {
		balance.Credited += uint64(c.Credited)
		balance.Held += uint64(c.Held)
		balance.Spent += uint64(c.Spent)
		balance.Unexplained += c.Unexplained
	}
	r.Append(history.Record{Kind: history.Books, Balance: &balance})
	return err
}

func named(o stream.Outcome) string {
	if o == 0 {
		return ""
	}
	return o.String()
}

// everyTile lets every watcher watch every tile.
func everyTile(context.Context, session.Identity, fence.TileID) error { return nil }
