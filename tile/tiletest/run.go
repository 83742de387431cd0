package tiletest

import (
	"bytes"
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// NewRules makes the rules of a tile, as servers do. Run calls it many times; no two rules that it returns may share
// state.
type NewRules func(fence.TileID) (tile.Rules, error)

// Generator makes a random intent. It should reach every kind of intent that the game knows, and some that it does not.
// What it returns may depend on r and on its own state only, so that a seed gives the same game again. The zero Tile is
// replaced by the one under test. An ActionID must not be used twice.
type Generator func(r *rand.Rand) tile.Intent

// Config holds what has a default. The zero value is valid.
type Config struct {
	// Tile is the tile that the rules are made for. Default 85283083fffffff, an H3 cell of resolution 5.
	Tile fence.TileID
	// Tiles are those between which entities travel, of Cross alone. Default 85283083fffffff and 85283087fffffff, two
	// neighbours.
	Tiles []fence.TileID
	// Ends reports whether what departs under a name ends where it arrives, or comes back, and is in no census: a
	// message of package warp, or coins that become part of a balance. It is of Cross alone, as the next two are.
	// Default: nothing ends so.
	Ends func(entity string) bool
	// Totals sums what a tile has, such as coins and goods by their names, and Carries what is under way with a
	// departure. What all tiles and all that is under way have together may never change. Default: no sums.
	Totals  func(tile.Rules) map[string]int
	Carries func(*stream.Departure) map[string]int
	// Ticks is how many ticks are played on the rules alone, and half as many on a cluster. Default 300.
	Ticks int
	// Intents is how many intents a tick has at most. Default 8.
	Intents int
	// MaxSnapshot bounds what Snapshot returns in bytes. Default fence.MaxSnapshot.
	MaxSnapshot int
	// Seed gives the same intents again. Default the environment variable TILEFENCE_SEED, or a random one.
	Seed uint64

	tuning tuning
}

// tuning are settings that only tests change.
type tuning struct {
	MaxBatch int // bounds a tick's batch in bytes; owners divide what is larger
}

// defaultTile is an H3 cell of resolution 5.
const defaultTile fence.TileID = 0x85283083fffffff

func (c *Config) withDefaults() Config {
	d := setting.Of(c)
	d.Tile = cmp.Or(d.Tile, defaultTile)
	if len(d.Tiles) == 0 {
		d.Tiles = []fence.TileID{defaultTile, defaultTile + 1<<30}
	}
	d.Ticks = cmp.Or(d.Ticks, 300)
	if d.Ends == nil {
		d.Ends = func(string) bool { return false }
	}
	if d.Totals == nil {
		d.Totals = func(tile.Rules) map[string]int { return nil }
	}
	if d.Carries == nil {
		d.Carries = func(*stream.Departure) map[string]int { return nil }
	}
	d.Intents = cmp.Or(d.Intents, 8)
	d.tuning.MaxBatch = cmp.Or(d.tuning.MaxBatch, fence.MaxPayload)
	d.MaxSnapshot = cmp.Or(d.MaxSnapshot, fence.MaxSnapshot)
	if d.Seed == 0 {
		d.Seed, _ = strconv.ParseUint(os.Getenv("TILEFENCE_SEED"), 10, 64)
	}
	d.Seed = cmp.Or(d.Seed, rand.Uint64())
	return d
}

// Run checks a game's rules; see the package comment. A nil cfg means the defaults.
func Run(t *testing.T, newRules NewRules, intent Generator, cfg *Config) {
	t.Helper()
	if newRules == nil || intent == nil {
		t.Fatal("tiletest.Run needs what makes the rules of a tile, and what makes random intents: one of them is nil")
	}
	c := cfg.withDefaults()
	again := fmt.Sprintf("again with: TILEFENCE_SEED=%d go test -run '^%s$'", c.Seed, t.Name())
	t.Log(again)
	counts := tally{}
	synctest.Test(t, func(t *testing.T) {
		if err := play(newRules, intent, c, counts); err != nil {
			t.Fatalf("%v\n%s", err, again)
		}
	})
	counts.log(t)
	synctest.Test(t, func(t *testing.T) { playCluster(t, newRules, intent, c) })
}

// generated draws the intents of a tick.
func generated(r *rand.Rand, intent Generator, c *Config) ([]tile.Intent, error) {
	intents := make([]tile.Intent, max(0, r.IntN(c.Intents+2)-1)) // one tick in five or so has none
	for i := range intents {
		in := intent(r)
		if in.Tile == 0 && len(c.Tiles) > 0 {
			in.Tile = c.Tiles[r.IntN(len(c.Tiles))]
		}
		in.Tile = cmp.Or(in.Tile, c.Tile)
		if err := in.Validate(); err != nil {
			return nil, fmt.Errorf("the generator made an intent that no server takes: %w", err)
		}
		intents[i] = in
	}
	return intents, nil
}

// violation is a promise that the rules have broken.
type violation struct {
	what, detail, lookFor string
	tick                  fence.Tick
	intents               []tile.Intent
}

// Error implements error.
func (v *violation) Error() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%s\n  at tick %d, with %d intents", v.what, v.tick, len(v.intents))
	for i, in := range v.intents {
		fmt.Fprintf(b, "\n    %d: actor %q, action %q, body %.64q", i, in.Actor, in.ActionID, in.Body)
	}
	for line := range strings.Lines(v.detail) {
		fmt.Fprintf(b, "\n  %s", strings.TrimRight(line, "\n"))
	}
	if v.lookFor != "" {
		fmt.Fprintf(b, "\n  look for: %s", v.lookFor)
	}
	return b.String()
}

// difference says where two encodings of a state differ first.
func difference(a, b []byte) string {
	at := 0
	for at < min(len(a), len(b)) && a[at] == b[at] {
		at++
	}
	from := max(0, at-8)
	around := func(p []byte) string { return fmt.Sprintf("%q", p[min(from, len(p)):min(at+16, len(p))]) }
	return fmt.Sprintf("first difference at byte %d: %s of %d bytes, then %s of %d, both from byte %d", at, around(a),
		len(a), around(b), len(b), from)
}

func same(a, b []byte) bool { return bytes.Equal(a, b) }
