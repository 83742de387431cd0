package game_test

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/game"
	"github.com/tilefence/tilefence/fence"
)

// The bytes below are read by other languages. A change here is a change of version.

func unhex(t testing.TB, text string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	require.NoError(t, err)
	return b
}

func TestGoldenOrders(t *testing.T) {
	for want, o := range map[string]game.Order{
		"0101":         {Kind: game.Spawn},
		"01020960":     {Kind: game.Move, Cell: 2400},
		"010300010002": {Kind: game.Volley, Target: 65538},
		"0104":         {Kind: game.Shield},
		"01050007":     {Kind: game.Warp, Cell: 7},
	} {
		assert.Equal(t, want, hex.EncodeToString(o.Encode()))
		got, err := game.DecodeOrder(o.Encode())
		require.NoError(t, err)
		assert.Equal(t, o, got)
	}
}

func TestGoldenEvents(t *testing.T) {
	for want, e := range map[string]game.Event{
		"010000000109606400 03 616461": {Kind: game.Spawned, Ship: 1, Cell: 2400, Hull: 100, Owner: "ada"},
		"02000000020960":               {Kind: game.Moved, Ship: 2, Cell: 2400},
		"0300000001 00000002 41 05 00": {Kind: game.Fired, Ship: 1, Target: 2, Hull: 65, Shield: 5},
		"0300000001 00000002 00 00 08": {Kind: game.Fired, Ship: 1, Target: 2, Wait: 8},
		"0400000002 28":                {Kind: game.Shielded, Ship: 2, Shield: 40},
		"0500000002 0007":              {Kind: game.Warped, Ship: 2, Cell: 7},
		"0600000002 0008 64 00":        {Kind: game.Returned, Ship: 2, Cell: 8, Hull: 100},
	} {
		wire := e.Append(nil)
		assert.Equal(t, unhex(t, want), wire)
		got, err := game.DecodeEvent(wire)
		require.NoError(t, err)
		assert.Equal(t, e, got)
	}
}

const goldenSnapshot = "01 0013 0002" +
	"0009 46 05 00000000 0000000000000000 03 616461" + // ada on cell 9: 70 hull, 5 shield
	"000a 00 00 00000003 0000000000000030 03 626f62" // bob, destroyed on cell 10 with 3 to his score, back at tick 48

func TestGoldenSnapshot(t *testing.T) {
	wire := unhex(t, goldenSnapshot)
	v, err := game.NewView(19)
	require.NoError(t, err)
	require.NoError(t, v.Restore(wire))
	assert.Equal(t, []game.Ship{
		{ID: 1, Owner: "ada", Cell: 9, Hull: 70, Shield: 5},
		{ID: 2, Owner: "bob", Cell: 10, Score: 3, Back: 48},
	}, v.Ships())
	assert.Equal(t, "bb08e30235330d0748e1f70035bbfd3e2df31d7d2863a3213756178a92437f42", v.Digest().String())

	r, err := game.NewRules(newDisk(2))
	require.NoError(t, err)
	require.NoError(t, r.Restore(wire))
	got, err := r.Snapshot()
	require.NoError(t, err)
	assert.Equal(t, wire, got)
}

func TestRestoreRefusesWhatCannotBe(t *testing.T) {
	const ada, bob = "0009 46 05 00000000 0000000000000000 03 616461", "000a 00 00 00000003 0000000000000030 03 626f62"
	for name, text := range map[string]string{
		"empty":                "",
		"version":              "02 0013 0000",
		"another ground":       "01 0014 0000",
		"cut short":            "01 0013 0001" + ada[:len(ada)-2],
		"bytes left over":      "01 0013 0001" + ada + "00",
		"fewer than announced": "01 0013 0002" + ada,
		"more than there is":   "01 0013 ffff" + ada,
		"no such cell":         "01 0013 0001 0013 46 05 00000000 0000000000000000 03 616461",
		"no owner":             "01 0013 0001 0009 46 05 00000000 0000000000000000 00",
		"an owner twice":       "01 0013 0002" + ada + "0008 46 05 00000000 0000000000000000 03 616461",
		"a cell twice":         "01 0013 0002" + ada + "0009 46 05 00000000 0000000000000000 03 626f62",
		"in play and waiting":  "01 0013 0001 0009 46 05 00000000 0000000000000001 03 616461",
		"destroyed for ever":   "01 0013 0001 0009 00 05 00000000 0000000000000000 03 616461",
		"back after the end":   "01 0013 0001 0009 00 00 00000000 ffffffffffffffff 03 616461",
		"owner of 65 bytes":    "01 0013 0001 0009 46 05 00000000 0000000000000000 41" + strings.Repeat("61", 65),
	} {
		v, err := game.NewView(19)
		require.NoError(t, err)
		require.NoError(t, v.Restore(unhex(t, "01 0013 0001"+bob)))
		before := v.Digest()
		var format *fence.FormatError
		assert.ErrorAs(t, v.Restore(unhex(t, text)), &format, name)
		assert.Equal(t, before, v.Digest(), "%s: a refused snapshot changes nothing", name)
	}
}

func TestApplyRefusesWhatDoesNotFit(t *testing.T) {
	for name, e := range map[string]game.Event{
		"a ship out of turn":       {Kind: game.Spawned, Ship: 4, Cell: 1, Hull: 1, Owner: "eve"},
		"a spawn on a taken cell":  {Kind: game.Spawned, Ship: 3, Cell: 9, Hull: 1, Owner: "eve"},
		"a spawn without hull":     {Kind: game.Spawned, Ship: 3, Cell: 1, Owner: "eve"},
		"a second ship":            {Kind: game.Spawned, Ship: 3, Cell: 1, Hull: 1, Owner: "ada"},
		"nobody moves":             {Kind: game.Moved, Ship: 3, Cell: 1},
		"ship zero moves":          {Kind: game.Moved, Cell: 1},
		"off the ground":           {Kind: game.Moved, Ship: 1, Cell: 19},
		"onto itself":              {Kind: game.Warped, Ship: 1, Cell: 9},
		"a wreck moves":            {Kind: game.Moved, Ship: 2, Cell: 1},
		"a wreck is shielded":      {Kind: game.Shielded, Ship: 2, Shield: 40},
		"a shield shrinks":         {Kind: game.Shielded, Ship: 1, Shield: 5},
		"a wreck is hit":           {Kind: game.Fired, Ship: 1, Target: 2},
		"it hits itself":           {Kind: game.Fired, Ship: 1, Target: 1, Hull: 1},
		"a volley repairs":         {Kind: game.Fired, Ship: 2, Target: 1, Hull: 71, Shield: 5},
		"destroyed without a wait": {Kind: game.Fired, Ship: 2, Target: 1},
		"alive with a wait":        {Kind: game.Fired, Ship: 2, Target: 1, Hull: 1, Wait: 1},
		"a return of who is here":  {Kind: game.Returned, Ship: 1, Cell: 1, Hull: 100},
		"a return without hull":    {Kind: game.Returned, Ship: 2, Cell: 1},
		"a return to a taken cell": {Kind: game.Returned, Ship: 2, Cell: 9, Hull: 100},
	} {
		r, err := game.NewRules(newDisk(2))
		require.NoError(t, err)
		require.NoError(t, r.Restore(unhex(t, goldenSnapshot)))
		before := r.Digest()
		assert.ErrorIs(t, r.Apply(1, [][]byte{e.Append(nil)}), game.ErrDisagree, name)
		assert.Equal(t, before, r.Digest(), name)
	}
	v, err := game.NewView(19)
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
	for k := game.Spawned; k <= game.Returned; k++ {
		f.Add((&game.Event{Kind: k, Ship: 1, Target: 2, Cell: 3, Hull: 4, Owner: "ada"}).Append(nil))
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
	f.Add(unhex(f, goldenSnapshot), (&game.Event{Kind: game.Moved, Ship: 1, Cell: 3}).Append(nil))
	f.Add(unhex(f, goldenSnapshot), (&game.Event{Kind: game.Fired, Ship: 2, Target: 1, Wait: 8}).Append(nil))
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
		again, err := game.NewRules(newDisk(2))
		require.NoError(t, err)
		require.NoError(t, again.Restore(got))
		require.Equal(t, r.Digest(), again.Digest())
	})
}
