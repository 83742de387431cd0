package tiletest_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

// market is a tile of traders. A buyer's coins depart for the seller's tile; its rules take them, and let the goods
// depart in the same batch, or refuse them, and they come back.
type market struct {
	mutant string
	id     fence.TileID
	Coins  map[string]int // by trader
	Goods  map[string]int
	Orders int // so far: what departs has a name of its own
}

const price = 3

// order is what a payment says, and what goods say: whose they are.
type order struct{ Buyer, Seller string }

// booked is an event: what a trader has more, or less.
type booked struct {
	Trader       string
	Coins, Goods int
	Departs      int // how many have departed
}

func newMarket(mutant string) tiletest.NewRules {
	return func(id fence.TileID) (tile.Rules, error) { return &market{mutant: mutant, id: id}, nil }
}

func (m *market) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	coins, goods, orders := maps.Clone(m.Coins), maps.Clone(m.Goods), m.Orders // a draft: traders pay once
	room := map[fence.TileID]int{}
	book := func(b booked) {
		event, _ := json.Marshal(b)
		out.Events = append(out.Events, event)
		coins[b.Trader], goods[b.Trader], orders = coins[b.Trader]+b.Coins, goods[b.Trader]+b.Goods, orders+b.Departs
	}
	depart := func(to fence.TileID, what string, o order, b booked) bool {
		if _, asked := room[to]; !asked {
			room[to] = in.Room(to, 64)
		}
		if room[to] == 0 {
			return false
		}
		room[to]--
		payload, _ := json.Marshal(o)
		out.Departures = append(out.Departures, stream.Departure{To: to, Payload: payload, // no actor: the buyer stays
			Entity: fmt.Sprintf("%s-%s-%d", what, m.id, orders)})
		b.Departs = 1
		book(b)
		return true
	}
	for _, a := range in.Arrivals {
		var o order
		_ = json.Unmarshal(a.Payload, &o)
		switch {
		case strings.HasPrefix(a.Entity, "goods"):
			book(booked{Trader: o.Buyer, Goods: 1})
			out.Verdicts = append(out.Verdicts, tile.Verdict{})
		case goods[o.Seller] > 0 && depart(a.From, "goods", o, booked{Trader: o.Seller, Goods: -1, Coins: price}):
			out.Verdicts = append(out.Verdicts, tile.Verdict{}) // the coins are taken as the goods depart
		default:
			if m.mutant == "keeps the coins" {
				book(booked{Trader: o.Seller, Coins: price})
			}
			out.Verdicts = append(out.Verdicts, tile.Verdict{Refused: "sold out"})
		}
	}
	for _, r := range in.Returns { // coins are the buyer's again, and goods the seller's
		var o order
		_ = json.Unmarshal(r.Payload, &o)
		if strings.HasPrefix(r.Entity, "goods") {
			book(booked{Trader: o.Seller, Goods: 1})
		} else if m.mutant != "forgets the coins" {
			book(booked{Trader: o.Buyer, Coins: price})
		}
	}
	for _, i := range in.Intents {
		var to fence.TileID
		o := order{Buyer: i.Actor}
		_, err := fmt.Sscan(string(i.Body), &to, &o.Seller)
		switch {
		case err != nil || to == m.id:
			out.Decide(stream.Rejected, "say where, and who sells")
		case coins[o.Buyer] < price:
			out.Decide(stream.Fizzled, "too few coins")
		case !depart(to, "coins", o, booked{Trader: o.Buyer, Coins: -price}):
			out.Decide(stream.Fizzled, "the border is closed")
		default:
			out.Decide(stream.Applied, "")
		}
	}
	return out
}

func (m *market) Resolve(fence.Tick, []tile.Intent) ([][]byte, []stream.Outcome) {
	panic("Play is called")
}

func (m *market) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		var b booked
		if err := json.Unmarshal(e, &b); err != nil {
			return err
		}
		m.Coins[b.Trader] += b.Coins
		m.Goods[b.Trader] += b.Goods
		m.Orders += b.Departs
	}
	return nil
}

func (m *market) Snapshot() ([]byte, error) { return json.Marshal(m) }

// Restore gives the four traders of a new market what they begin with.
func (m *market) Restore(snapshot []byte) error {
	m.Coins, m.Goods, m.Orders = map[string]int{}, map[string]int{}, 0
	for i := range 4 {
		m.Coins[traderOf(m.id, i)], m.Goods[traderOf(m.id, i)] = 10, 2
	}
	if snapshot == nil {
		return nil
	}
	return json.Unmarshal(snapshot, m)
}

func traderOf(id fence.TileID, i int) string { return "trader-" + id.String() + "-" + strconv.Itoa(i) }

// trades is a random intent: a trader buys from one of the other tile.
func trades(r *rand.Rand) tile.Intent {
	here, there := lobby, theatre
	if r.IntN(2) == 0 {
		here, there = there, here
	}
	return tile.Intent{Tile: here, Actor: traderOf(here, r.IntN(4)),
		Body: fmt.Appendf(nil, "%d %s", uint64(there), traderOf(there, r.IntN(4)))}
}

func noEntities(tile.Rules) []string { return nil }

// marketConfig says what tiles have, and what is under way: no coin and no goods are lost or made.
func marketConfig() *tiletest.Config {
	return &tiletest.Config{
		Ends: func(string) bool { return true },
		Totals: func(rules tile.Rules) map[string]int {
			m, sum := rules.(*market), map[string]int{}
			for trader := range m.Coins {
				sum["coins"], sum["goods"] = sum["coins"]+m.Coins[trader], sum["goods"]+m.Goods[trader]
			}
			return sum
		},
		Carries: func(d *stream.Departure) map[string]int {
			if strings.HasPrefix(d.Entity, "goods") {
				return map[string]int{"goods": 1}
			}
			return map[string]int{"coins": price}
		}}
}

// TestTradesLoseNothing plays trades over owners that are killed, and messages that are lost and repeated.
func TestTradesLoseNothing(t *testing.T) {
	tiletest.Cross(t, newMarket(""), trades, noEntities, marketConfig())
}

// TestWrongTradesAreCaught: rules that keep refused coins, or forget those that come back, change the totals.
func TestWrongTradesAreCaught(t *testing.T) {
	for _, mutant := range []string{"keeps the coins", "forgets the coins"} {
		assert.ErrorContains(t, tiletest.CrossViolation(t, newMarket(mutant), trades, noEntities, marketConfig()),
			"The totals have changed", mutant)
	}
}
