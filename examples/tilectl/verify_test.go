package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// play commits batches of actions to a tile as owners do, each of which begins with its claim.
func (b *board) play(id fence.TileID, owners, batches int) {
	b.Helper()
	var at fence.Position
	for o := range owners {
		c := fence.Claim{Tile: id, Contact: fmt.Sprintf("10.0.0.%d:7000", o), ID: fence.NewClaimID(),
			Expected: at.Epoch}
		take := b.authority.Claim
		if o > 0 {
			take = b.authority.Promote
		}
		g, err := take(b.Context(), c)
		require.NoError(b, err)
		for i := range batches + 1 {
			batch := &stream.Batch{Claim: g.ID}
			if i > 0 {
				batch = &stream.Batch{Events: [][]byte{[]byte("one"), []byte("two")}, Resolutions: []stream.Resolution{
					{ActionID: fmt.Sprintf("%d-%d", o, i), Outcome: stream.Applied}}}
			}
			payload, private, err := batch.Encode()
			require.NoError(b, err)
			r, err := b.store.Commit(b.Context(), fence.Commit{Tile: id, Epoch: g.Epoch, Contact: c.Contact, Prev: at,
				Tick: fence.Tick(at.Seq), Payload: payload, Private: private, Install: i == 0})
			require.NoError(b, err)
			at = r.Position
		}
	}
}

func TestVerify(t *testing.T) {
	b := newBoard(t)
	b.play(first, 3, 5)
	out, _, err := b.tilectl(t.Context(), "verify "+first.String())
	require.NoError(t, err)
	require.Regexp(t, `85283083fffffff +0/0/\w+ +3/18/\w+ +18 +30 +3 +0 +15 +kept\n`, out)

	const owned = third
	var stops []func()
	for i, contact := range []string{"10.0.0.1:7000", "10.0.0.2:7000"} {
		p, err := tile.New(owned, contact, tile.Seams{Authority: b.authority, Store: b.store, Log: b.log}, &register{},
			&tile.Config{TickInterval: 5 * time.Millisecond, TakeOver: true, SnapshotEvery: 1 << 30})
		require.NoError(t, err)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = p.Run(ctx) // the first is superseded
		}()
		stops = append(stops, func() { stop(); <-ended })
		for n := range 30 {
			_, err := p.Submit(t.Context(), tile.Intent{Tile: owned, ActionID: fmt.Sprint(i, n), Body: []byte("word")})
			require.NoError(t, err)
		}
		out, _, err = b.tilectl(t.Context(), "verify "+owned.String()) // while it is run
		require.NoError(t, err, out)
	}
	require.Regexp(t, `8528308bfffffff.* 62 +60 +2 +1 +60 +kept\n`, out, "the first owner began with a rebase")

	for _, stop := range stops {
		stop()
	}
	out, _, err = b.tilectl(t.Context(), "verify "+owned.String()) // all is in the snapshot now
	require.NoError(t, err, out)

	b.store.Update(first, func(s *memfence.State) {
		s.Snapshot = &fence.Snapshot{Position: fence.Position{Epoch: 1, Seq: 2}}
	})
	_, _, err = b.tilectl(t.Context(), "verify "+first.String())
	require.ErrorIs(t, err, errDamaged, "a snapshot of another history")
}

// traced is what trace writes of a tile.
func (b *board) traced(id fence.TileID) (entries []fence.Entry) {
	b.Helper()
	out, _, err := b.tilectl(b.Context(), "trace "+id.String())
	require.NoError(b, err)
	for raw := []byte(out); len(raw) > 0; {
		n := binary.BigEndian.Uint32(raw)
		e, err := fence.DecodeEntry(raw[4 : 4+n])
		require.NoError(b, err)
		entries, raw = append(entries, e), raw[4+n:]
	}
	return entries
}

func framed(entries []fence.Entry) []byte {
	var raw []byte
	for i := range entries {
		raw = binary.BigEndian.AppendUint32(raw, uint32(len(entries[i].Frame)))
		raw = append(raw, entries[i].Frame...)
	}
	return raw
}

func TestVerifyTrace(t *testing.T) {
	b := newBoard(t)
	b.play(first, 2, 4)
	b.play(second, 2, 4)
	good, other := b.traced(first), b.traced(second)
	require.Len(t, good, 10)
	foreign := func(e *fence.Entry, private []byte) fence.Entry { // a batch that was committed after the same position
		c := fence.Commit{Tile: first, Epoch: e.Epoch, Prev: e.Prev, Payload: other[2].Payload, Private: private}
		return c.Entry()
	}
	damaged := bytes.Clone(framed(good))
	damaged[len(damaged)-1] ^= 1
	for name, c := range map[string]struct {
		trace  []byte
		breaks string
	}{
		"as it was":    {framed(good), "kept"},
		"from within":  {framed(good[3:]), "kept"},
		"a hole":       {framed(append(good[:3:3], good[4:]...)), "no fork"},
		"twice":        {framed(append(good[:4:4], good[3:]...)), "no fork"},
		"a fork":       {framed(append(append(good[:3:3], foreign(&good[3], nil)), good[4:]...)), "no fork"},
		"two outcomes": {framed(append(good[:9:9], foreign(&good[9], good[2].Private))), "one outcome"},
		"no claim":     {framed(append(good[:5:5], foreign(&good[5], nil))), "one writer"},
		"foreign tile": {framed(append(good[:3:3], other[3])), "is of tile"},
		"damaged":      {damaged, "chain is"},
		"broken off":   {framed(good)[:300], "breaks off"},
		"no trace":     {[]byte("PK\x03\x04 a zip file"), "no frame"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "trace")
			require.NoError(t, os.WriteFile(path, c.trace, 0o600))
			b := newBoard(t)
			out, _, err := b.tilectl(t.Context(), "-json verify trace "+path)
			require.Equal(t, c.breaks == "kept", err == nil, out)
			require.Contains(t, strings.SplitN(out, `"verdict":`, 2)[1], c.breaks)
		})
	}
}

// BenchmarkVerifyTrace is how fast a trace is verified: entries of two events and one outcome each.
func BenchmarkVerifyTrace(b *testing.B) {
	var trace []byte
	var at fence.Position
	const entries = 100_000
	for i := range entries {
		batch := &stream.Batch{Claim: fence.NewClaimID()}
		if i > 0 {
			batch = &stream.Batch{Events: [][]byte{make([]byte, 40), make([]byte, 40)},
				Resolutions: []stream.Resolution{{ActionID: fmt.Sprint("action-", i), Outcome: stream.Applied}}}
		}
		payload, private, err := batch.Encode()
		require.NoError(b, err)
		c := fence.Commit{Tile: first, Epoch: 1, Prev: at, Payload: payload, Private: private}
		e := c.Entry()
		trace, at = append(trace, framed([]fence.Entry{e})...), e.Position
	}
	b.SetBytes(int64(len(trace)))
	for b.Loop() {
		v := newVerifier(first)
		require.NoError(b, v.trace(bytes.NewReader(trace)))
	}
	b.ReportMetric(float64(entries)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
}
