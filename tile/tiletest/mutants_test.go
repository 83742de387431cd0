package tiletest_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tiletest"
)

// purse is a game of coins: "give NAME N" adds coins to a name, "take NAME" all that it has; "bad" is rejected.
// mutant, if set, is what it does wrong.
type purse struct {
	mutant  string
	coins   map[string]int
	decided bool // Resolve was called
	kept    []tile.Intent
}

var shared int // of the mutant that keeps state where all rules see it

func (p *purse) Restore(snapshot []byte) error {
	if p.mutant != "restore adds" || p.coins == nil {
		p.coins = map[string]int{}
	}
	for line := range strings.Lines(string(snapshot)) {
		var name string
		var n int
		if _, err := fmt.Sscanf(line, "%s %d\n", &name, &n); err != nil {
			return fmt.Errorf("line %q: %w", line, err)
		}
		p.coins[name] = n
	}
	return nil
}

func (p *purse) Resolve(tick fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	p.decided, p.kept = true, intents
	for _, in := range intents {
		name, n := p.parse(string(in.Body))
		switch {
		case string(in.Body) == "bad" && p.mutant == "outcome missing":
			continue
		case string(in.Body) == "bad" && p.mutant == "outcome zero":
			outcomes = append(outcomes, 0)
			continue
		case string(in.Body) == "bad" && p.mutant == "panic":
			panic("a bad intent")
		case string(in.Body) == "bad":
			outcomes = append(outcomes, stream.Rejected)
			continue
		case p.mutant == "resolve writes" && n > 0:
			p.coins[name] += n
		case p.mutant == "large event" && n > 0:
			events = append(events, make([]byte, stream.MaxEvent+1))
		case p.mutant == "refuses its own":
			events = append(events, []byte("huh"))
		}
		outcomes = append(outcomes, stream.Applied)
		events = append(events, fmt.Appendf(nil, "%s %d", name, n))
	}
	return events, outcomes
}

func (p *purse) parse(body string) (name string, n int) {
	_, _ = fmt.Sscanf(body, "%s %d", &name, &n)
	return name, n
}

func (p *purse) Apply(tick fence.Tick, events [][]byte) error {
	for _, e := range events {
		name, n := p.parse(string(e))
		switch {
		case string(e) == "huh":
			return errors.New("an unknown event")
		case p.mutant == "follower ignores" && !p.decided && n == 3:
			continue
		case p.mutant == "follower refuses" && !p.decided:
			return errors.New("an unknown event")
		case p.mutant == "time" && n == 3:
			n = int(time.Now().Unix() % 1000)
		case p.mutant == "kept from resolve" && n == 3:
			n = len(p.kept)
		case p.mutant == "chance" && n == 3:
			n = rand.IntN(1000)
		case p.mutant == "shared":
			shared += n
			n = shared
		case p.mutant == "writes event":
			e[0] = 'X'
		}
		if n == 0 {
			delete(p.coins, name)
		} else {
			p.coins[name] += n
		}
	}
	return nil
}

func (p *purse) Snapshot() ([]byte, error) {
	names := slices.Sorted(maps.Keys(p.coins))
	if p.mutant == "map order" {
		names = slices.Collect(maps.Keys(p.coins))
	}
	var b []byte
	for _, name := range names {
		n := p.coins[name]
		if p.mutant == "snapshot forgets" && n%4 == 1 {
			continue
		}
		b = fmt.Appendf(b, "%s %d\n", name, n)
	}
	if p.mutant == "snapshot time" {
		b = binary.BigEndian.AppendUint64(b, uint64(time.Now().UnixNano()))
	}
	return b, nil
}

func newPurse(mutant string) tiletest.NewRules {
	return func(fence.TileID) (tile.Rules, error) { return &purse{mutant: mutant}, nil }
}

func coins(r *rand.Rand) tile.Intent {
	if r.IntN(20) == 0 {
		return tile.Intent{Actor: "ann", Body: []byte("bad")}
	}
	return tile.Intent{Actor: "ann", ActionID: fmt.Sprint("a", r.Uint64()),
		Body: fmt.Appendf(nil, "%c %d", 'a'+r.IntN(6), r.IntN(6))}
}

func TestGoodRulesPass(t *testing.T) { tiletest.Run(t, newPurse(""), coins, nil) }

// one makes rules that hold the same state each time.
func one() tiletest.NewRules {
	p := &purse{}
	return func(fence.TileID) (tile.Rules, error) { return p, nil }
}

// TestMutantsAreCaught: each game that breaks one promise fails with what it broke, and what to look for.
func TestMutantsAreCaught(t *testing.T) {
	for mutant, want := range map[string][]string{
		"resolve writes": {"Resolve changes the state", "first difference at byte", "does so alone",
			"decide on a copy"},
		"map order":         {"Snapshot gives other bytes", "map without sorted keys"},
		"snapshot time":     {"Snapshot gives other bytes", "time.Now"},
		"follower ignores":  {"have only folded differ", "kind of event"},
		"follower refuses":  {"Apply refuses what the owner", "an unknown event"},
		"time":              {"differ", "time.Now"},
		"chance":            {"differ", "math/rand"},
		"kept from resolve": {"differ", "kept from Resolve"},
		"outcome missing":   {"one outcome for each intent", `body "bad"`},
		"outcome zero":      {"an outcome that is none", "left zero"},
		"shared":            {"differ"},
		"restore adds":      {"Restore of a snapshot is not the state", "Restore adds to"},
		"snapshot forgets":  {"differ", "Snapshot does not write"},
		"writes event":      {"Apply changes the bytes of an event"},
		"large event":       {"do not fit into a batch", "65536"},
		"refuses its own":   {"Apply refuses events that Resolve has returned", "an unknown event"},
		"panic":             {"The rules panic", "a bad intent", "mutants_test.go"},
	} {
		t.Run(mutant, func(t *testing.T) {
			err := tiletest.Violation(t, newPurse(mutant), coins, nil)
			require.Error(t, err)
			for _, words := range append(want, "at tick ") {
				assert.ErrorContains(t, err, words)
			}
		})
	}
}

func TestRulesOfOneStateAreCaught(t *testing.T) {
	err := tiletest.Violation(t, one(), coins, nil)
	assert.ErrorContains(t, err, "Two rules share state")
}

func TestSizesAreBounded(t *testing.T) {
	err := tiletest.Violation(t, newPurse(""), coins, tiletest.Config{}.With(tiletest.Tuning{MaxBatch: 100}))
	assert.ErrorContains(t, err, "The batch is too large")
	err = tiletest.Violation(t, newPurse(""), coins, &tiletest.Config{MaxSnapshot: 20})
	assert.ErrorContains(t, err, "The snapshot is too large")
}

func TestGeneratorMakesIntentsThatServersTake(t *testing.T) {
	bad := func(*rand.Rand) tile.Intent { return tile.Intent{Actor: "a\nb"} }
	assert.ErrorContains(t, tiletest.Violation(t, newPurse(""), bad, nil), "no server takes")
}

// fields is a divided game: each of three areas has a number, and an event adds to it.
type fields struct {
	mutant string
	n      [4]uint32
}

func (f *fields) Area(event []byte) fence.Area { return fence.Area(event[0]) }

func (f *fields) Restore(list []byte) error {
	f.n = [4]uint32{}
	for p := range fence.Parts(list) {
		f.n[p.Area] = binary.BigEndian.Uint32(p.Content)
	}
	return nil
}

func (f *fields) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		events, outcomes = append(events, in.Body), append(outcomes, stream.Applied)
	}
	return events, outcomes
}

func (f *fields) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		f.n[e[0]] += uint32(e[1])
		switch f.mutant {
		case "writes another":
			f.n[1]++
		case "reads another":
			f.n[e[0]] += f.n[e[0]-1]
		}
	}
	return nil
}

func (f *fields) Snapshot() (list []byte, err error) {
	for a, n := range f.n {
		if f.mutant == "no list" {
			list = append(list, 0)
		} else if n > 0 {
			list = fence.AppendPart(list, fence.Area(a), binary.BigEndian.AppendUint32(nil, n))
		}
	}
	return list, nil
}

func TestAreasFollowFromTheirOwnEvents(t *testing.T) {
	add := func(r *rand.Rand) tile.Intent {
		return tile.Intent{Body: []byte{byte(1 + r.IntN(3)), byte(1 + r.IntN(9))}}
	}
	newFields := func(mutant string) tiletest.NewRules {
		return func(fence.TileID) (tile.Rules, error) { return &fields{mutant: mutant}, nil }
	}
	tiletest.Run(t, newFields(""), add, nil)
	for mutant, want := range map[string]string{"writes another": "area 1 does not follow",
		"reads another": "does not follow from its own", "no list": "no list of parts"} {
		assert.ErrorContains(t, tiletest.Violation(t, newFields(mutant), add, nil), want, mutant)
	}
}
