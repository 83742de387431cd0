package tiletest

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime/debug"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// What to look for, where a promise is broken.
const (
	inResolve = "a field of the rules that Resolve assigns, a slice or map of the state that it sorts, appends to or " +
		"deletes from, a pointer into the state that it writes through: decide on a copy"
	inSnapshot = "a range over a map without sorted keys, time.Now or math/rand in Snapshot"
	inRestore  = "a field that Snapshot does not write, that Restore does not set back, or that Restore adds to"
	inApply    = "what Apply uses and events do not say: time.Now, math/rand, the order of a map, a field or pointer " +
		"kept from Resolve, a field that Snapshot does not write, a kind of event that only the owner folds"
	inNew   = "a global variable, or a map, slice or pointer that the constructor gives to all rules"
	inAreas = "an event that changes a part of the state which Divided.Area does not name: give each area an event"
)

// game is the rules of one tile, thrice: an owner that decides, and two that only fold.
type game struct {
	Config
	newRules NewRules
	r        *rand.Rand

	owner    tile.Rules // decides and folds, as the owner does
	follower tile.Rules // has folded everything from the start
	restored tile.Rules // has begun from a snapshot not long ago
	earlier  []byte     // a snapshot that was restored before

	tick    fence.Tick
	intents []tile.Intent
	counts  tally
	border  *border // nil: nothing crosses it
}

// play plays random ticks on the rules alone. The error says which promise the rules have broken.
func play(newRules NewRules, intent Generator, c Config, counts tally) (err error) {
	g := &game{Config: c, newRules: newRules, counts: counts, r: rand.New(rand.NewPCG(c.Seed, 1))}
	defer func() {
		if p := recover(); p != nil {
			err = g.violated("The rules panic", fmt.Sprintf("%v\n%s", p, debug.Stack()), "")
		}
	}()
	if err = g.begin(); err != nil {
		return err
	}
	for range c.Ticks {
		g.tick++
		if g.r.IntN(16) == 0 {
			g.tick += fence.Tick(g.r.IntN(5)) // ticks are missed
		}
		if g.intents, err = generated(g.r, intent, &c); err != nil {
			return err
		}
		if err = g.step(); err != nil {
			return err
		}
	}
	return nil
}

// begin makes rules of a new tile, all alike.
func (g *game) begin() error {
	var first []byte
	for _, rules := range []*tile.Rules{&g.owner, &g.follower, &g.restored} {
		var err error
		if *rules, err = g.fresh(nil); err != nil {
			return err
		}
		if rules == &g.owner {
			first, err = g.snapshot(*rules)
		} else {
			err = g.compare(first, *rules, "New tiles differ", "time.Now or math/rand in the constructor")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (g *game) violated(what, detail, lookFor string) error {
	return &violation{what: what, detail: detail, lookFor: lookFor, tick: g.tick, intents: g.intents}
}

// fresh makes rules that hold a snapshot.
func (g *game) fresh(snapshot []byte) (tile.Rules, error) {
	rules, err := g.newRules(g.Tile)
	if err == nil {
		err = rules.Restore(bytes.Clone(snapshot))
	}
	if err != nil {
		return nil, g.violated("Restore, or the constructor, fails", err.Error(), "")
	}
	return rules, nil
}

// step plays one tick.
func (g *game) step() error {
	before, err := g.snapshot(g.owner)
	if err != nil {
		return err
	}
	batch, out, err := g.decide(before)
	if err != nil || g.r.IntN(8) == 0 { // the store may refuse what was decided; then it has not happened
		return err
	}
	payload, err := g.encode(batch)
	g.counts.decided(batch, out)
	crosses := g.border != nil && len(out.Verdicts)+len(g.border.returns) > 0
	if err != nil || batch.Len() == 0 && !crosses { // nothing is committed
		return err
	}
	if err := g.fold(batch, payload, before); err != nil {
		return err
	}
	if g.border != nil {
		if err := g.border.settle(g, out); err != nil {
			return err
		}
	}
	if err := g.areas(batch, before); err != nil {
		return err
	}
	switch g.r.IntN(16) {
	case 0: // the owner is killed, and a follower takes over
		g.owner = g.restored
		return g.restart()
	case 1, 2, 3:
		return g.restart()
	}
	return nil
}

// compare encodes the state and compares it with another. what says that they differ.
func (g *game) compare(want []byte, rules tile.Rules, what, lookFor string) error {
	got, err := g.snapshot(rules)
	if err != nil || same(want, got) {
		return err
	}
	for range 20 { // two orders of a map may be the same
		if _, err := g.snapshot(rules); err != nil {
			return err
		}
	}
	return g.violated(what, difference(want, got), lookFor)
}

// snapshot encodes the state, twice.
func (g *game) snapshot(rules tile.Rules) ([]byte, error) {
	first, err := rules.Snapshot()
	if err != nil {
		return nil, g.violated("Snapshot fails", err.Error(), "")
	}
	first = bytes.Clone(first)
	time.Sleep(time.Hour + time.Second + time.Millisecond + 1)
	again, err := rules.Snapshot()
	if err != nil {
		return nil, g.violated("Snapshot fails", err.Error(), "")
	}
	if !same(first, again) {
		return nil, g.violated("Snapshot gives other bytes when it is called again", difference(first, again),
			inSnapshot)
	}
	if len(first) > g.MaxSnapshot {
		return nil, g.violated("The snapshot is too large",
			fmt.Sprintf("%d bytes, at most %d", len(first), g.MaxSnapshot), "state that is never removed")
	}
	_, divided := rules.(tile.Divided)
	if err := fence.CheckParts(first); divided && err != nil {
		return nil, g.violated("The snapshot of divided rules is no list of parts", err.Error(), "fence.AppendPart")
	}
	return first, nil
}

// ask asks rules about a tick, as the owner does.
func ask(rules tile.Rules, tick fence.Tick, in *tile.Inputs) (out tile.Outputs) {
	if travels, ok := rules.(tile.TransferRules); ok {
		return travels.Play(tick, *in)
	}
	out.Events, out.Outcomes = rules.Resolve(tick, in.Intents)
	return out
}

// closed is Inputs.Room of a tile that nothing leaves.
func closed(fence.TileID, int) int { return 0 }

// decide plays Resolve, or Play, which may not change the state.
func (g *game) decide(before []byte) (*stream.Batch, *tile.Outputs, error) {
	in := tile.Inputs{Intents: g.intents, Elapsed: elapsed(g.r), Room: closed, Rim: unseen}
	var seen map[fence.TileID][]byte
	if g.border != nil {
		g.border.inputs(&in)
		var err error
		if in.Rim, err = g.border.rims(g); err != nil {
			return nil, nil, err
		}
		seen = g.border.pictures()
	}
	out := ask(g.owner, g.tick, &in)
	if err := g.compare(before, g.owner, "Resolve changes the state", inResolve); err != nil {
		return nil, nil, g.culprit(err, before)
	}
	if len(out.Outcomes) != len(g.intents) {
		return nil, nil, g.violated("Resolve must return one outcome for each intent",
			fmt.Sprintf("%d outcomes", len(out.Outcomes)), "an intent that is skipped without an outcome")
	}
	if g.border != nil {
		if err := g.border.unchanged(g, seen); err != nil {
			return nil, nil, err
		}
		if err := g.border.check(g, &out); err != nil {
			return nil, nil, err
		}
	}
	batch := &stream.Batch{Events: out.Events, Departures: out.Departures}
	for i, o := range out.Outcomes {
		if !o.Valid() {
			return nil, nil, g.violated("Resolve returns an outcome that is none", fmt.Sprintf("intent %d: %s", i, o),
				"an outcome that is left zero")
		}
		if id := g.intents[i].ActionID; id != "" {
			batch.Resolutions = append(batch.Resolutions, stream.Resolution{ActionID: id, Outcome: o})
		}
	}
	if rules, ok := g.owner.(tile.Divided); ok {
		batch.Divide(rules.Area)
	}
	return batch, &out, nil
}

// culprit adds to a violation the first intent that changes the state when it is alone.
func (g *game) culprit(err error, before []byte) error {
	v, ok := errors.AsType[*violation](err)
	for i := range g.intents {
		rules, err := g.fresh(before)
		if err != nil || !ok {
			break
		}
		ask(rules, g.tick, &tile.Inputs{Intents: g.intents[i : i+1], Room: closed, Rim: unseen})
		if after, err := rules.Snapshot(); err == nil && !same(before, after) {
			v.detail += fmt.Sprintf("\nintent %d does so alone", i)
			break
		}
	}
	return err
}

// encode encodes a batch as the owner commits it.
func (g *game) encode(batch *stream.Batch) ([]byte, error) {
	payload, private, err := batch.Encode()
	size := len(payload) + len(private)
	switch {
	case err != nil:
		return nil, g.violated("The events do not fit into a batch", err.Error(), "")
	case size > g.tuning.MaxBatch:
		return nil, g.violated("The batch is too large", fmt.Sprintf("%d bytes, at most %d", size,
			g.tuning.MaxBatch), "")
	}
	return payload, nil
}

// fold applies a batch to all, as the owner and followers do, and compares them.
func (g *game) fold(batch *stream.Batch, payload, before []byte) error {
	if err := g.owner.Apply(g.tick, batch.Events); err != nil {
		return g.violated("Apply refuses events that Resolve has returned", err.Error(), "")
	}
	want, err := g.snapshot(g.owner)
	if err != nil {
		return err
	}
	if again, err := g.encode(batch); err != nil || !same(payload, again) {
		return g.violated("Apply changes the bytes of an event", difference(payload, again),
			"a slice that is kept and written to")
	}
	for _, f := range []struct {
		name  string
		rules tile.Rules
	}{{"rules that have only folded", g.follower}, {"rules that began from a snapshot", g.restored}} {
		if err := g.compare(before, f.rules, "Two rules share state", inNew); err != nil {
			return err
		}
		if err := apply(f.rules, g.tick, payload); err != nil {
			return g.violated("Apply refuses what the owner's rules have folded; asked were "+f.name, err.Error(),
				inApply)
		}
		if err := g.compare(want, f.rules, "The owner and "+f.name+" differ", inApply); err != nil {
			return err
		}
	}
	return nil
}

// apply folds a copy of a payload, as it is read from the stream.
func apply(rules tile.Rules, tick fence.Tick, payload []byte) error {
	b, err := stream.DecodeBatch(&fence.Entry{Payload: bytes.Clone(payload)})
	if err != nil {
		return err
	}
	return rules.Apply(tick, b.Events)
}

// restart restores the owner's state, over an earlier one.
func (g *game) restart() error {
	want, err := g.snapshot(g.owner)
	if err != nil {
		return err
	}
	if g.restored, err = g.fresh(g.earlier); err != nil {
		return err
	}
	if err := g.restored.Restore(bytes.Clone(want)); err != nil {
		return g.violated("Restore refuses what Snapshot has written", err.Error(), "")
	}
	g.earlier = want
	return g.compare(want, g.restored, "Restore of a snapshot is not the state that it was taken of", inRestore)
}

// areas checks that each area follows from its own events, and from those of the whole tile.
func (g *game) areas(batch *stream.Batch, before []byte) error {
	if batch.Areas == nil {
		return nil
	}
	after, err := g.snapshot(g.owner)
	if err != nil {
		return err
	}
	payload, err := g.encode(batch)
	if err != nil {
		return err
	}
	for a := range fence.Area(math.MaxUint8) {
		want, got := part(after, a), part(before, a)
		if own, _ := fence.SelectParts(payload, fence.Areas(a)); len(own) > 0 {
			rules, err := g.fresh(before)
			if err != nil {
				return err
			}
			if err = apply(rules, g.tick, own); err != nil {
				return g.violated(fmt.Sprintf("Apply refuses the events of area %d without those of others", a),
					err.Error(), inAreas)
			}
			list, err := g.snapshot(rules)
			if err != nil {
				return err
			}
			got = part(list, a)
		}
		if !same(want, got) {
			return g.violated(fmt.Sprintf("The state of area %d does not follow from its own events", a),
				difference(want, got), inAreas)
		}
	}
	return nil
}

// part is the content of an area's part in a list.
func part(list []byte, a fence.Area) []byte {
	for p := range fence.Parts(list) {
		if p.Area == a {
			return p.Content
		}
	}
	return nil
}
