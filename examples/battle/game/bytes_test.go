package game_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// The bytes below are read by other languages. A change here is a change of version.

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

func TestGoldenOrders(t *testing.T) {
	for want, o := range map[string]game.Order{
		"02010009":                 {Kind: game.Spawn, Cell: 9},
		"02020960":                 {Kind: game.Move, Cell: 2400},
		"020300010002":             {Kind: game.Volley, Target: 65538},
		"0204":                     {Kind: game.Shield},
		"02050007":                 {Kind: game.Warp, Cell: 7},
		"020600070000000000000102": {Kind: game.Sail, Cell: 7, Tile: 258},
		"02070000000000000102":     {Kind: game.Fleet, Tile: 258},
		"0207000000000000010200000000000000070461644037": {Kind: game.Fleet, Tile: 258,
			Fleet: []game.Member{{Tile: 7, Name: "ad@7"}}},
	} {
		assert.Equal(t, want, hex.EncodeToString(o.Encode()))
		got, err := game.DecodeOrder(o.Encode())
		require.NoError(t, err)
		assert.Equal(t, o, got)
	}
}

func TestGoldenEvents(t *testing.T) {
	for want, e := range map[string]game.Event{
		"01 01 0960 64 00 00 00 03 616461": {Kind: game.Spawned, Ship: 1, Cell: 2400, Hull: 100, Owner: "ada"},
		"02 02 0960":                       {Kind: game.Moved, Ship: 2, Cell: 2400},
		"02 e112 0960":                     {Kind: game.Moved, Ship: 2401, Cell: 2400},
		"03 01 31 02 41 05 00":             {Kind: game.Fired, Area: 49, Ship: 1, Target: 2, Hull: 65, Shield: 5},
		"03 ac02 31 02 00 00 08":           {Kind: game.Fired, Area: 49, Ship: 300, Target: 2, Wait: 8},
		"04 02 31 28":                      {Kind: game.Shielded, Area: 49, Ship: 2, Shield: 40},
		"05 02 0007":                       {Kind: game.Warped, Ship: 2, Cell: 7},
		"06 02 0008 64 00":                 {Kind: game.Returned, Ship: 2, Cell: 8, Hull: 100},
		"07 02 31":                         {Kind: game.Left, Area: 49, Ship: 2},
		"08 e112 0031 46 05 ac02 00 03 616461": {Kind: game.Entered, Ship: 2401, Cell: 49, Hull: 70, Shield: 5,
			Score: 300, Owner: "ada"},
		"08 02 0031 46 05 01 07 0000000000000102 03 616461": {Kind: game.Entered, Ship: 2, Cell: 49, Hull: 70,
			Shield: 5, Score: 1, Hop: 7, Home: 258, Owner: "ada"},
		"09 02 31":                  {Kind: game.Scored, Area: 49, Ship: 2},
		"0a 00 06":                  {Kind: game.Paced, Pace: 6},
		"0b 02 31 0000000000000102": {Kind: game.Departed, Area: 49, Ship: 2, To: 258},
		"0c 00 31 02 0000000000000102 03 616461": {Kind: game.Sunk, Area: 49, Hop: 2, Home: 258,
			Owner: "ada"},
	} {
		wire := e.Append(nil)
		assert.Equal(t, unhex(t, want), wire)
		got, err := game.DecodeEvent(wire)
		require.NoError(t, err)
		assert.Equal(t, e, got)
	}
}

// goldenSnapshot is of three ships on the 19 cells, in three areas, of a disk: of one that has spawned there, and of
// two that came from elsewhere; another one has sunk.
const goldenSnapshot = "01 07 04 00 01 03 7a6f65 02 1f 04 01 03 616461 00" + goldenAda + goldenBob +
	"03 18 04 00 00" + goldenEve

const (
	goldenAda = "01 0009 46 05 00 00 00 03 616461"                    // on cell 9: 70 hull, 5 shield
	goldenBob = "02 000a 00 00 03 30 00 03 626f62"                    // destroyed, has scored three, back at tick 48
	goldenEve = "03 0011 64 00 ac02 00 02 0000000000000102 03 657665" // it has left two tiles
)

var everything fence.AreaSet

func TestGoldenSnapshot(t *testing.T) {
	wire := unhex(t, goldenSnapshot)
	v, err := game.NewView(newDisk(2))
	require.NoError(t, err)
	require.NoError(t, v.Restore(wire, everything))
	assert.Equal(t, []game.Ship{
		{ID: 1, Owner: "ada", Cell: 9, Hull: 70, Shield: 5, Home: 7},
		{ID: 2, Owner: "bob", Cell: 10, Score: 3, Home: 7, Back: 48},
		{ID: 3, Owner: "eve", Cell: 17, Hull: 100, Score: 300, Home: 258, Hop: 2},
	}, v.Ships())
	assert.Equal(t, "17b49680aecaabf29d68b97daf8ad5d801ef8eb28426673a9ce6e8c1769d3e4e", v.Digest().String())
	assert.Equal(t, "837e99a07c453aebc08d4b51e150e4bf88b652fcc1e19b4a79e3a0c2dc02e04d", v.Digests()[3].String())
	assert.Equal(t, fmt.Sprintf("%x", sha256.Sum256(unhex(t, "04 00 01 03 7a6f65"))), v.Digests()[1].String(),
		"an area without ships")

	r, err := game.NewRules(newDisk(2))
	require.NoError(t, err)
	require.NoError(t, r.Restore(wire))
	got, err := r.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, wire, got)
}

// TestViewOfAnArea: of a snapshot a view holds what it asked for, and nothing else happens to it.
func TestViewOfAnArea(t *testing.T) {
	v, err := game.NewView(newDisk(2))
	require.NoError(t, err)
	owners := func() (names []string) {
		for _, s := range v.Ships() {
			names = append(names, s.Owner)
		}
		return names
	}
	require.NoError(t, v.Restore(unhex(t, goldenSnapshot), fence.Areas(1, 3)))
	assert.Equal(t, []string{"eve"}, owners())
	assert.Len(t, v.Digests(), 2)
	_, ok := v.ShipOf("ada")
	assert.False(t, ok)

	both := stream.Batch{Events: [][]byte{
		(&game.Event{Kind: game.Moved, Ship: 1, Cell: 8}).Append(nil),
		(&game.Event{Kind: game.Left, Ship: 3, Area: 3}).Append(nil),
	}, Areas: []fence.Area{2, 3}}
	payload, _, err := both.Encode()
	require.NoError(t, err)
	require.NoError(t, v.Apply(&fence.Entry{Tick: 1, Payload: payload}), "what it does not hold is ignored")
	assert.Empty(t, owners())

	require.NoError(t, v.Open(unhex(t, goldenSnapshot), fence.Areas(2)))
	assert.Equal(t, []string{"ada", "bob"}, owners())
	v.Keep(fence.Areas(1, 3))
	assert.Empty(t, owners())
	assert.Len(t, v.Digests(), 2)
	var format *fence.FormatError
	assert.ErrorAs(t, v.Open(unhex(t, "02 01 03"), fence.Areas(2)), &format)
	assert.Len(t, v.Digests(), 2, "a refused snapshot changes nothing")
}

func TestRestoreRefusesWhatCannotBe(t *testing.T) {
	const ada, bob, eve = goldenAda, goldenBob, goldenEve
	part := func(area fence.Area, text string) []byte { return fence.AppendPart(nil, area, unhex(t, text)) }
	for name, wire := range map[string][]byte{
		"not a list":           {2},
		"version":              part(2, "01"+ada),
		"nothing":              part(2, "040000"),
		"names cut short":      part(2, "04 02 03 616461"),
		"a name of no bytes":   part(2, "04 01 00 00"),
		"the whole tile":       part(0, "040000"+ada),
		"no such area":         part(4, "040000"+ada),
		"another area's cell":  part(1, "040000"+ada),
		"cut short":            part(2, "040000"+ada[:len(ada)-2]),
		"bytes left over":      part(2, "040000"+ada+"00"),
		"no ascending numbers": part(2, "040000"+bob+ada),
		"a number twice":       part(2, "040000"+ada+"01 000a 00 00 03 30 00 03 626f62"),
		"number zero":          part(2, "040000 00 0009 46 05 00 00 00 03 616461"),
		"number over 19":       part(2, "040000 14 0009 46 05 00 00 00 03 616461"),
		"a long number":        part(2, "040000 8100 0009 46 05 00 00 00 03 616461"),
		"no such cell":         part(3, "040000 01 0013 46 05 00 00 00 03 616461"),
		"no owner":             part(2, "040000 01 0009 46 05 00 00 00 00"),
		"an owner twice":       part(2, "040000"+ada+"02 0008 46 05 00 00 00 03 616461"),
		"a cell twice":         part(2, "040000"+ada+"02 0009 46 05 00 00 00 03 626f62"),
		"in play and waiting":  part(2, "040000 01 0009 46 05 00 01 00 03 616461"),
		"destroyed for ever":   part(2, "040000 01 0009 00 05 00 00 00 03 616461"),
		"back after the end":   part(2, "040000 01 0009 00 00 00 ffffffffffffffff01 00 03 616461"),
		"owner of 48 bytes":    part(2, "040000 01 0009 46 05 00 00 00 30"+strings.Repeat("61", 48)),
	} {
		v, err := game.NewView(newDisk(2))
		require.NoError(t, err)
		require.NoError(t, v.Restore(part(2, "040000"+bob), everything))
		before := v.Digest()
		var format *fence.FormatError
		assert.ErrorAs(t, v.Restore(wire, everything), &format, name)
		assert.ErrorAs(t, v.Open(wire, everything), &format, name)
		assert.Equal(t, before, v.Digest(), "%s: a refused snapshot changes nothing", name)
	}

	r, err := game.NewRules(newDisk(2))
	require.NoError(t, err)
	var format *fence.FormatError
	twice := append(part(2, "040000"+ada+bob), part(3, "040000"+eve+"04 0010 64 00 00 00 00 03 616461")...)
	assert.ErrorAs(t, r.Restore(twice), &format, "an owner with two ships")
	twice = append(part(1, "040000 01 0001 46 05 00 00 00 03 616461"), part(2, "040000"+ada)...)
	assert.ErrorAs(t, r.Restore(twice), &format, "a ship in two areas")
}

func TestApplyRefusesWhatDoesNotFit(t *testing.T) {
	for name, e := range map[string]game.Event{
		"a taken number":           {Kind: game.Spawned, Ship: 1, Cell: 7, Hull: 1, Owner: "zoe"},
		"number zero":              {Kind: game.Spawned, Ship: 0, Cell: 1, Hull: 1, Owner: "zoe"},
		"a number over the ground": {Kind: game.Spawned, Ship: 20, Cell: 1, Hull: 1, Owner: "zoe"},
		"a spawn on a taken cell":  {Kind: game.Spawned, Ship: 4, Cell: 9, Hull: 1, Owner: "zoe"},
		"a spawn off the ground":   {Kind: game.Spawned, Ship: 4, Cell: 19, Hull: 1, Owner: "zoe"},
		"a spawn without hull":     {Kind: game.Spawned, Ship: 4, Cell: 1, Owner: "zoe"},
		"a spawn from elsewhere":   {Kind: game.Spawned, Ship: 4, Cell: 1, Hull: 1, Hop: 1, Home: 7, Owner: "zoe"},
		"a spawn with a score":     {Kind: game.Spawned, Ship: 4, Cell: 1, Hull: 1, Score: 1, Owner: "zoe"},
		"a second ship":            {Kind: game.Spawned, Ship: 4, Cell: 8, Hull: 1, Owner: "ada"},
		"a twin enters":            {Kind: game.Entered, Ship: 1, Cell: 8, Hull: 1, Owner: "ada"},
		"another's ship enters":    {Kind: game.Entered, Ship: 4, Cell: 8, Hull: 1, Owner: "bob"},
		"a wreck enters":           {Kind: game.Entered, Ship: 1, Cell: 1, Owner: "ada"},
		"no ship moves":            {Kind: game.Moved, Ship: 4, Cell: 1},
		"ship zero moves":          {Kind: game.Moved, Cell: 1},
		"off the ground":           {Kind: game.Moved, Ship: 1, Cell: 19},
		"out of its area":          {Kind: game.Moved, Ship: 1, Cell: 1},
		"onto itself":              {Kind: game.Warped, Ship: 1, Cell: 9},
		"a wreck moves":            {Kind: game.Moved, Ship: 2, Cell: 8},
		"a wreck is shielded":      {Kind: game.Shielded, Area: 2, Ship: 2, Shield: 40},
		"a shield shrinks":         {Kind: game.Shielded, Area: 2, Ship: 1, Shield: 5},
		"shielded in no area":      {Kind: game.Shielded, Ship: 1, Shield: 40},
		"shielded elsewhere":       {Kind: game.Shielded, Area: 1, Ship: 1, Shield: 40},
		"no such area":             {Kind: game.Shielded, Area: 4, Ship: 1, Shield: 40},
		"a wreck is hit":           {Kind: game.Fired, Area: 2, Ship: 1, Target: 2},
		"it hits itself":           {Kind: game.Fired, Area: 2, Ship: 1, Target: 1, Hull: 1},
		"hit elsewhere":            {Kind: game.Fired, Area: 3, Ship: 2, Target: 1, Hull: 1},
		"a volley repairs":         {Kind: game.Fired, Area: 2, Ship: 2, Target: 1, Hull: 71, Shield: 5},
		"destroyed without a wait": {Kind: game.Fired, Area: 2, Ship: 2, Target: 1},
		"alive with a wait":        {Kind: game.Fired, Area: 2, Ship: 2, Target: 1, Hull: 1, Wait: 1},
		"a return of who is here":  {Kind: game.Returned, Ship: 1, Cell: 8, Hull: 100},
		"a return without hull":    {Kind: game.Returned, Ship: 2, Cell: 8},
		"a return to a taken cell": {Kind: game.Returned, Ship: 2, Cell: 9, Hull: 100},
		"a return elsewhere":       {Kind: game.Returned, Ship: 2, Cell: 1, Hull: 100},
		"a wreck leaves":           {Kind: game.Left, Area: 2, Ship: 2},
		"it leaves where it isn't": {Kind: game.Left, Area: 1, Ship: 1},
		"no ship departs":          {Kind: game.Departed, Area: 2, Ship: 4, To: 1},
		"a wreck departs":          {Kind: game.Departed, Area: 2, Ship: 2, To: 1},
		"it sinks nowhere":         {Kind: game.Sunk, Area: 4, Owner: "ada"},
		"no ship scores":           {Kind: game.Scored, Area: 2, Ship: 4},
	} {
		r, err := game.NewRules(newDisk(2))
		require.NoError(t, err)
		require.NoError(t, r.Restore(unhex(t, goldenSnapshot)))
		before := r.Digest()
		assert.ErrorIs(t, r.Apply(1, [][]byte{e.Append(nil)}), game.ErrDisagree, name)
		assert.Equal(t, before, r.Digest(), name)
	}
	v, err := game.NewView(newDisk(2))
	require.NoError(t, err)
	assert.ErrorIs(t, v.Apply(&fence.Entry{Tick: fence.MaxNumber + 1}), game.ErrDisagree)
	var format *fence.FormatError
	assert.ErrorAs(t, v.Apply(&fence.Entry{Tick: 1, Payload: []byte{9}}), &format, "not a batch")
	assert.ErrorAs(t, v.Apply(&fence.Entry{Tick: 1, Payload: []byte{0, 2, 1, 9}}), &format, "not an event")
}

func FuzzDecodeOrder(f *testing.F) {
	for _, o := range []game.Order{{Kind: game.Spawn}, {Kind: game.Move, Cell: 9}, {Kind: game.Volley, Target: 7}} {
		f.Add(o.Encode())
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if o, err := game.DecodeOrder(p); err == nil {
			require.Equal(t, p, o.Encode(), "one order has one encoding")
		}
	})
}

func FuzzDecodeEvent(f *testing.F) {
	for k := game.Spawned; k <= game.Sunk; k++ {
		f.Add((&game.Event{Kind: k, Ship: 1, Area: 1, Target: 2, Cell: 3, Hull: 4, Owner: "ada"}).Append(nil))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		if e, err := game.DecodeEvent(p); err == nil {
			require.Equal(t, p, e.Append(nil), "one event has one encoding")
		}
	})
}

// FuzzRestoreAndApply feeds a view any snapshot and any event: it may refuse them, and whatever it holds
// then is a state that its own snapshot describes.
func FuzzRestoreAndApply(f *testing.F) {
	f.Add(unhex(f, goldenSnapshot), (&game.Event{Kind: game.Moved, Ship: 1, Cell: 8}).Append(nil))
	f.Add(unhex(f, goldenSnapshot), (&game.Event{Kind: game.Fired, Area: 2, Ship: 2, Target: 1, Wait: 8}).Append(nil))
	f.Add(unhex(f, goldenSnapshot), (&game.Event{Kind: game.Scored, Area: 3, Ship: 3}).Append(nil))
	f.Fuzz(func(t *testing.T, snapshot, event []byte) {
		r, err := game.NewRules(newDisk(2))
		require.NoError(t, err)
		if err := r.Restore(snapshot); err == nil && snapshot != nil {
			got, err := r.Snapshot()
			require.NoError(t, err)
			require.Equal(t, snapshot, got, "one state has one snapshot")
		}
		before := r.Digest()
		if err := r.Apply(7, [][]byte{event}); err != nil {
			require.Equal(t, before, r.Digest(), "a refused event changes nothing")
		}
		got, err := r.Snapshot()
		require.NoError(t, err)
		again, err := game.NewView(newDisk(2)) // a single event may leave ships out: Rules would not restore it
		require.NoError(t, err)
		require.NoError(t, again.Restore(got, everything))
		require.Equal(t, r.Digest(), again.Digest())
	})
}
