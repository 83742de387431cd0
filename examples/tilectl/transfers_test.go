package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// What a tile has committed of those that cross its border is listed without an owner, and what the game has named
// them does nothing to a terminal.
func TestTransfers(t *testing.T) {
	b := newBoard(t)
	_, _, err := b.tilectl(t.Context(), "transfers 85283083fffffff")
	require.ErrorContains(t, err, "knows nothing")
	peer := fence.TileID(0x85283087fffffff)
	departs := func(entity string) stream.Departure {
		return stream.Departure{To: peer, Entity: entity, Actor: "ann", Payload: make([]byte, 300)}
	}
	id := func(seq fence.Seq, index int) stream.TransferID {
		return stream.TransferID{Epoch: 1, Seq: seq, Index: index}
	}
	full := []stream.Refusal{{ID: id(7, 1), Reason: "full"}}
	bad := fence.AsName(hostile, stream.MaxEntity)
	var at fence.Position
	for i, batch := range []stream.Batch{{Claim: fence.NewClaimID()},
		{Departures: []stream.Departure{departs("argo"), departs("hope"), departs(bad)}},
		{Settlements: []stream.Settlement{{To: peer, UpTo: id(2, 2),
			Parked: []stream.Refusal{{ID: id(2, 2), Reason: "the rules fail"}}}}},
		{Decisions: []stream.Decision{{From: peer, Mark: id(7, 1), Refused: full}}},
	} {
		payload, private, err := batch.Encode()
		require.NoError(t, err)
		done, err := b.store.Commit(t.Context(), fence.Commit{Tile: first, Epoch: 1, Contact: "a:1", Prev: at,
			Tick: fence.Tick(10 * i), Payload: payload, Private: private, Install: at.IsZero()})
		require.NoError(t, err)
		at = done.Position
	}
	out, _, err := b.tilectl(t.Context(), "transfers 85283083fffffff")
	require.NoError(t, err)
	harmless(t, out)
	words := strings.Join(strings.Fields(out), " ")
	require.Contains(t, words, "under way 85283087fffffff 1/2.3 ")
	require.Contains(t, words, "parked 85283087fffffff 1/2.2 hope ann 10 20 300 B the rules fail")
	require.Contains(t, words, "refused 85283087fffffff 1/7.1 - - 0 0 0 B full")
	require.NotContains(t, words, "argo", "it is settled")
	require.Contains(t, words, "with 85283087fffffff: departures are settled to 1/2.2, arrivals are decided to 1/7.1")
	out, _, err = b.tilectl(t.Context(), "-json transfers 85283083fffffff")
	require.NoError(t, err)
	harmless(t, out)
	require.Equal(t, 4, strings.Count(out, "\n"))
	require.Contains(t, out, `"settled":"1/2.2","decided":"1/7.1"}`)
}
