//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/plainjson"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// player is one player. All of it belongs to the loop, once it has joined.
type player struct {
	*swarm
	actor string
	tile  *picture
	brain *game.Bot
	due   time.Time // when it acts next
	tick  fence.Tick

	relay  crowd.Socket
	synced bool           // a first Sync has come
	at     fence.Position // what it holds
	areas  fence.AreaSet  // what it watches
	watch  uint32         // the number of its last Watch
	asked  time.Time      // when it sent a Resync that is not answered; zero: there is none

	gateway crowd.Socket
	sent    int // orders, for their ids
	order   order
	held    time.Time // until then the gateway wants no orders
}

// order is one that has no outcome yet; the zero value is none.
type order struct {
	id     int
	action string // empty: a move
	body   []byte
	began  time.Time
	tries  int       // that had no answer, or another error than a refusal
	again  time.Time // when it is presented again; zero: it is under way
}

// A player asks again after these times, as an ordinary bot does.
const (
	orderTimeout  = 3 * time.Second
	orderTries    = 10
	resyncTimeout = 5 * time.Second
)

// subscribe asks for what the brain wants to see.
func (p *player) subscribe() error {
	want := p.brain.Viewport(p.tile.view)
	p.areas = fence.Areas(want...)
	return p.tell(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
		Held: []*relaypb.Held{{Tile: p.tile.id.String(), Areas: relaypb.FromAreas(p.areas)}}}}})
}

func (p *player) tell(m *relaypb.ClientMessage) error {
	body, err := relaypb.Binary.Append(nil, m)
	if err == nil {
		err = p.relay.Send(false, body)
	}
	return err
}

// seen takes a message of the relay.
func (p *player) seen(body []byte) error {
	p.bytes += uint64(len(body))
	v, err := decodeView(body)
	switch {
	case errors.Is(err, errLeads):
		return p.gap()
	case err != nil:
		return err
	case v.refused != "":
		return errors.New("the relay refuses: " + v.refused)
	case v.sync:
		return p.synchronize(&v)
	case v.position.IsZero() || !p.synced:
		return nil // a GoAway, or a frame from before the first Sync
	case v.from == p.at && v.kind != fence.KindRebase:
		p.moveTo(v.position)
		p.frames++
		p.toClient.Record(time.Since(fence.FromMillis(int64(v.atMs))))
		return nil
	case v.position.Epoch < p.at.Epoch, v.position.Seq <= p.at.Seq && v.position.Epoch == p.at.Epoch:
		return nil // of an earlier owner, or known
	}
	return p.gap()
}

// synchronize follows a Sync.
func (p *player) synchronize(v *view) error {
	p.syncs++
	switch {
	case !v.replace && !p.synced, !v.opens && v.position.Epoch < p.at.Epoch:
		return nil
	case v.opens && v.position != p.at, !v.opens && !v.replace && v.from != p.at:
		return p.gap()
	}
	if !p.synced {
		p.joined.Add(1)
	}
	p.synced = true
	p.moveTo(v.position)
	return nil
}

func (p *player) moveTo(at fence.Position) { p.at, p.asked = at, time.Time{} }

// gap asks for everything anew, once until it is answered.
func (p *player) gap() error {
	if p.asked.IsZero() {
		p.gaps++
	} else if time.Since(p.asked) < resyncTimeout {
		return nil
	}
	p.asked = time.Now()
	p.resyncs++
	return p.tell(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Resync{Resync: &relaypb.Resync{
		Tile: p.tile.id.String(), EpochFloor: uint64(p.at.Epoch)}}})
}

// act is called once a tick: the player looks where it wants to look now, and gives an order if it has none.
func (p *player) act(now time.Time) error {
	p.due = p.due.Add(p.every)
	if p.order.id != 0 {
		return p.remind(now)
	}
	if p.over || now.Before(p.held) {
		return nil
	}
	p.tick++
	want := p.brain.Viewport(p.tile.view)
	if areas := fence.Areas(want...); areas != p.areas {
		p.areas = areas
		p.watch++
		err := p.tell(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Watch{Watch: &relaypb.Watch{
			Tile: p.tile.id.String(), Areas: relaypb.FromAreas(areas), Number: p.watch}}})
		if err != nil {
			return err
		}
	}
	decided, acts := p.brain.Decide(p.tile.view, p.tick)
	if !acts {
		return nil
	}
	p.order = order{body: decided.Encode()}
	if decided.Kind.Card() {
		p.order.action = admission.NewActionID()
		p.cards++
	} else {
		p.moves++
	}
	return p.present(now)
}

// present sends the order.
func (p *player) present(now time.Time) error {
	p.sent++
	o := &p.order
	o.id, o.began, o.again = p.sent, now, time.Time{}
	p.text = appendIntent(p.text[:0], o.id, p.tile.id, o.action, o.body)
	return p.gateway.Send(true, p.text)
}

// remind looks after an order that has no outcome: a card is presented again, a move is given up.
func (p *player) remind(now time.Time) error {
	switch o := &p.order; {
	case o.again.IsZero() && now.Sub(o.began) > orderTimeout:
		p.toOutcome.Record(now.Sub(o.began))
		p.failed(now)
		return nil
	case o.again.IsZero() || now.Before(o.again):
		return nil
	}
	return p.present(now)
}

// failed notes that the order was presented in vain.
func (p *player) failed(now time.Time) {
	o := &p.order
	o.tries++
	switch {
	case o.action == "":
		p.movesFailed++
	case o.tries == orderTries:
		p.outcomes["unanswered"]++
	default:
		o.again = now.Add(time.Duration(50*o.tries) * time.Millisecond)
		return
	}
	p.order = order{}
}

// refused notes until when an overloaded gateway wants no orders. A card is presented again then; a move is not.
func (p *player) refused(until time.Time) {
	if p.held = until; p.order.action != "" {
		p.order.again = until
		return
	}
	p.movesRefused++
	p.order = order{}
}

// answer is a message of the gateway.
type answer struct {
	ID      string   `json:"id"`
	Outcome string   `json:"outcome"`
	Error   *refusal `json:"error"`
}

type refusal struct {
	Code       gatewayws.Code `json:"code"`
	RetryAfter int64          `json:"retry_after"` // milliseconds
}

// decodeAnswer reads a message of the gateway.
func decodeAnswer(body []byte) (a answer, err error) {
	r := plainjson.Read(body) // a movement's outcome
	r.Want(`{"id":`)
	a.ID = string(r.Text())
	r.Want(`,"outcome":`)
	a.Outcome = string(r.Text())
	r.Want("}")
	if r.Done() {
		return a, nil
	}
	a = answer{}
	if err = json.Unmarshal(body, &a); err != nil {
		err = fmt.Errorf("an answer cannot be read: %w", err)
	}
	return a, err
}

// told takes a message of the gateway.
func (p *player) told(body []byte) error {
	answer, err := decodeAnswer(body)
	if err != nil {
		return err
	}
	if answer.ID != strconv.Itoa(p.order.id) || !p.order.again.IsZero() {
		return nil // it came too late
	}
	now := time.Now()
	if e := answer.Error; e != nil && e.Code == gatewayws.CodeOverloaded {
		p.toRefusal.Record(now.Sub(p.order.began))
		after := time.Duration(e.RetryAfter) * time.Millisecond
		p.refused(now.Add(after + rand.N(after/2+1)))
		return nil
	}
	p.toOutcome.Record(now.Sub(p.order.began))
	if answer.Error != nil {
		p.failed(now)
		return nil
	}
	if p.order.action != "" {
		p.outcomes[answer.Outcome]++
	}
	p.order = order{}
	return nil
}
