package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// squeamish is a register that cannot fold the word poison.
type squeamish struct{ register }

func (s *squeamish) Apply(tick fence.Tick, events [][]byte) error {
	if bytes.Contains(bytes.Join(events, nil), []byte("poison")) {
		panic("no rule for it")
	}
	return s.register.Apply(tick, events)
}

// incident is a tile of a game that cannot fold an event of its own, and an operator.
type incident struct {
	*testing.T
	seams   tile.Seams
	id      fence.TileID
	tilectl func(line string) (out string, err error)
}

// play runs the tile for some intents and returns its state. The error is why it does not run.
func (i *incident) play(rules tile.Rules, words ...string) (state []string, err error) {
	// A snapshot between two intents would be one more that a rewind may go back to.
	p, err := tile.New(i.id, "10.0.0.1:7000", i.seams, rules,
		&tile.Config{TickInterval: 5 * time.Millisecond, SnapshotEvery: 1 << 20})
	require.NoError(i, err)
	ctx, stop := context.WithCancel(i.Context())
	end := make(chan error, 1)
	go func() { end <- p.Run(ctx) }()
	for _, w := range words {
		_, err := p.Submit(i.Context(), tile.Intent{Tile: i.id, Body: []byte(w)})
		ended := errors.Is(err, tile.ErrUnresolved) || errors.Is(err, tile.ErrRedirect)
		if ended || errors.Is(err, tile.ErrQuarantined) {
			stop()
			return nil, <-end
		}
		require.NoError(i, err)
	}
	stop()
	err = <-end
	s, _, failure := i.seams.Log.Snapshot(i.Context(), i.id)
	require.NoError(i, failure)
	game, _, failure := stream.OpenSnapshot(s.Blob)
	require.NoError(i, failure)
	require.NoError(i, json.Unmarshal(game, &state))
	return state, err
}

// strike lets it happen.
func (i *incident) strike(before ...string) {
	_, err := i.play(&squeamish{}, before...)
	require.NoError(i, err)
	_, err = i.play(&squeamish{}, "bread", "poison")
	require.ErrorIs(i, err, tile.ErrRules)
	_, err = i.play(&squeamish{}, "x")
	require.ErrorIs(i, err, tile.ErrQuarantined)
	_, err = i.play(&register{}, "x")
	require.ErrorIs(i, err, tile.ErrQuarantined)
}

func (i *incident) run() {
	name := i.id.String()
	out, err := i.tilectl("quarantine")
	require.NoError(i, err)
	require.NotContains(i, out, name)
	_, err = i.tilectl("quarantine skip " + name)
	require.Error(i, err, "it is not quarantined")

	i.strike("water")
	out, err = i.tilectl("quarantine")
	require.NoError(i, err)
	require.Regexp(i, name+` +closed +\d+ .* 10\.0\.0\.1:7000 +\d+/1 .*Apply: no rule for it`, out)
	_, err = i.tilectl("quarantine release " + name)
	require.NoError(i, err)
	_, err = i.play(&squeamish{}, "x")
	require.ErrorIs(i, err, tile.ErrQuarantined, "released too early, it is quarantined again")
	_, err = i.tilectl("-yes quarantine skip " + name)
	require.NoError(i, err)
	state, err := i.play(&squeamish{}, "wine")
	require.NoError(i, err)
	require.Equal(i, []string{"water", "bread", "wine"}, state)

	i.strike("salt")
	_, err = i.tilectl("-yes quarantine rewind " + name)
	require.NoError(i, err)
	state, err = i.play(&squeamish{}, "oil")
	require.NoError(i, err)
	require.Equal(i, []string{"water", "bread", "wine", "salt", "oil"}, state)

	i.strike("honey")
	_, err = i.tilectl("quarantine release " + name)
	require.NoError(i, err)
	state, err = i.play(&register{}, "beer")
	require.NoError(i, err)
	require.Equal(i, []string{"water", "bread", "wine", "salt", "oil", "honey", "bread", "poison", "beer"}, state)
}

// TestQuarantine: an operator has an event left out, rewinds a tile to its snapshot, and releases it to rules that can
// fold it.
func TestQuarantine(t *testing.T) {
	b := newBoard(t)
	i := &incident{T: t, id: first, seams: tile.Seams{Authority: b.authority, Store: b.store, Log: b.log},
		tilectl: func(line string) (string, error) {
			out, _, err := b.tilectl(t.Context(), line)
			return out, err
		}}
	i.run()

	i.strike("x")
	b.answers = "no\n"
	for _, command := range []string{"skip ", "rewind "} {
		_, err := i.tilectl("quarantine " + command + first.String())
		require.ErrorContains(t, err, "nothing was removed")
	}
	out, errs, err := b.tilectl(t.Context(), "tiles")
	require.NoError(t, err)
	require.Contains(t, out, "quarantined")
	require.Contains(t, errs, "Apply: no rule for it")
}

func TestQuarantineOnServers(t *testing.T) {
	s := newServers(t)
	(&incident{T: t, id: s.id, seams: s.seams,
		tilectl: func(line string) (string, error) {
			var out, errs bytes.Buffer
			args := append(slices.Clone(s.flags), strings.Fields(line)...)
			if run(t.Context(), args, nil, &out, &errs) != statusOK {
				return "", errors.New(errs.String())
			}
			return out.String(), nil
		}}).run()
}

// An operator who skips or rewinds is shown beforehand which entities have crossed in what is left out: nothing is
// promised of those.
func TestAnOperatorIsShownWhatHasCrossed(t *testing.T) {
	b := newBoard(t)
	peer := fence.TileID(0x85283087fffffff)
	b.answers = "no\n"
	departs := stream.Departure{To: peer, Entity: "argo", Payload: []byte("1")}
	back := stream.TransferID{Epoch: 1, Seq: 2, Index: 1}
	taken := stream.TransferID{Epoch: 1, Seq: 7, Index: 1}
	var at fence.Position
	for i, batch := range []stream.Batch{{Claim: fence.NewClaimID()},
		{Departures: []stream.Departure{departs}},
		{Decisions: []stream.Decision{{From: peer, Mark: taken}},
			Settlements: []stream.Settlement{{To: peer, UpTo: back}}}} {
		payload, private, err := batch.Encode()
		require.NoError(t, err)
		done, err := b.store.Commit(t.Context(), fence.Commit{Tile: first, Epoch: 1, Contact: "a:1", Prev: at,
			Tick: fence.Tick(i), Payload: payload, Private: private, Install: at.IsZero()})
		require.NoError(t, err)
		if at = done.Position; i == 0 {
			blob := []byte("{}")
			require.NoError(t, b.store.SaveSnapshot(t.Context(), fence.SnapshotWrite{Tile: first, Position: at,
				Blob: blob}))
		}
	}
	q, err := fence.Quarantine{At: fence.EventRef{Seq: 2, Index: 1}, By: "a:1", Reason: "x"}.Contact()
	require.NoError(t, err)
	g, err := b.authority.Claim(t.Context(), fence.Claim{Tile: first, Contact: "a:1", ID: fence.NewClaimID()})
	require.NoError(t, err)
	_, err = b.authority.Promote(t.Context(), fence.Claim{Tile: first, Contact: q, ID: fence.NewClaimID(),
		Expected: g.Epoch})
	require.NoError(t, err)
	said, _, err := b.tilectl(t.Context(), "quarantine skip "+first.String())
	require.ErrorContains(t, err, "nothing was removed")
	require.Contains(t, said, `"argo" has left for tile 85283087fffffff: it is in both`)
	require.NotContains(t, said, "was decided")
	said, _, err = b.tilectl(t.Context(), "quarantine rewind "+first.String())
	require.ErrorContains(t, err, "nothing was removed")
	require.Contains(t, said, `"argo" has left for tile 85283087fffffff: it is here again`)
	require.Contains(t, said, "up to transfer 1/7.1 was decided, and 0 refused: what was taken is lost")
	require.Contains(t, said, "up to transfer 1/2.1 was settled")
}
