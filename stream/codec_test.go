package stream_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// octets are bytes in hexadecimal.
type octets []byte

func (o *octets) UnmarshalText(text []byte) (err error) {
	*o, err = hex.DecodeString(string(text))
	return err
}

// golden reads a file of testdata, made by another program.
func golden[T any](t testing.TB, name string) (all []T) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &all))
	require.NotEmpty(t, all)
	return all
}

type goldenBatch struct {
	Name        string
	Events      []octets
	Resolutions []struct {
		ActionID string `json:"action_id"`
		Outcome  string
	}
	Claim, Payload, Private octets
	StateSum                uint32 `json:"state_sum"`
}

func (g *goldenBatch) batch(t testing.TB) *stream.Batch {
	b := &stream.Batch{StateSum: g.StateSum}
	copy(b.Claim[:], g.Claim)
	for _, e := range g.Events {
		b.Events = append(b.Events, e)
	}
	for _, r := range g.Resolutions {
		o, err := stream.ParseOutcome(r.Outcome)
		require.NoError(t, err)
		b.Resolutions = append(b.Resolutions, stream.Resolution{ActionID: r.ActionID, Outcome: o})
	}
	return b
}

// entryOf is an entry with these parts.
func entryOf(payload, private []byte) *fence.Entry {
	e := fence.NewEntry(fence.Entry{Tile: 1, Kind: fence.KindBatch, Position: fence.Position{Epoch: 1, Seq: 1},
		Payload: payload, Private: private})
	return &e
}

func TestSnapshotGolden(t *testing.T) {
	for _, g := range golden[struct {
		Name                string
		Divided             bool
		Game, Private, Blob octets
	}](t, "snapshots.json") {
		wrap := stream.AppendSnapshot
		if g.Divided {
			wrap = stream.AppendDivided
		}
		require.Equal(t, string(g.Blob), string(wrap(nil, g.Game, g.Private)), g.Name)
		require.Equal(t, g.Divided, stream.Divided(g.Blob), g.Name)
		game, private, err := stream.OpenSnapshot(g.Blob)
		require.NoError(t, err)
		require.Equal(t, string(g.Game), string(game), g.Name)
		require.Equal(t, string(g.Private), string(private), g.Name)
	}
}

func TestBatchGolden(t *testing.T) {
	t.Parallel()
	for _, g := range golden[goldenBatch](t, "batches.json") {
		b := g.batch(t)
		payload, private, err := b.Encode()
		require.NoError(t, err)
		require.Equal(t, string(g.Payload), string(payload), g.Name)
		require.Equal(t, string(g.Private), string(private), g.Name)
		e := entryOf(payload, private)
		decoded, err := stream.DecodeBatch(e)
		require.NoError(t, err)
		require.Equal(t, b, decoded, g.Name)
		require.Equal(t, len(g.Events)+len(g.Resolutions), decoded.Len())
		// Watchers see the events alone.
		w := e.Watched(fence.AreaSet{})
		decoded, err = stream.DecodeBatch(&w)
		require.NoError(t, err)
		require.Equal(t, &stream.Batch{Events: b.Events}, decoded, g.Name)
	}
	rebase, err := stream.DecodeBatch(&fence.Entry{Kind: fence.KindRebase, Private: []byte("a checksum")})
	require.NoError(t, err)
	require.Equal(t, &stream.Batch{}, rebase)
}

// TestAreasAndLaterSections: events of areas that this release does not write are read in order, and a section that a
// later release adds for owners is passed over if it may be.
func TestAreasAndLaterSections(t *testing.T) {
	t.Parallel()
	b, err := stream.DecodeBatch(entryOf([]byte("\x00\x02\x01a\x07\x04\x01b\x01c\xff\x02\x01d"),
		[]byte("\x01\x03\x01\x01x\x80\x01?\xff\x03...")))
	require.NoError(t, err)
	require.Equal(t, &stream.Batch{Events: [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")},
		Areas:       []fence.Area{0, 7, 7, 255},
		Resolutions: []stream.Resolution{{ActionID: "x", Outcome: stream.Applied}}}, b)
}

func TestDivide(t *testing.T) {
	t.Parallel()
	b := stream.Batch{Events: [][]byte{[]byte("9a"), []byte("2a"), []byte("9b"), []byte("0a"), []byte("2b")}}
	b.Divide(func(event []byte) fence.Area { return fence.Area(event[0] - '0') })
	payload, _, err := b.Encode()
	require.NoError(t, err)
	require.NoError(t, fence.CheckParts(payload))
	back, err := stream.DecodeBatch(entryOf(payload, nil))
	require.NoError(t, err)
	require.Equal(t, &b, back)
	require.Equal(t, "0a 2a 2b 9a 9b", string(bytes.Join(back.Events, []byte(" "))))

	whole := stream.Batch{Events: b.Events}
	same := stream.Batch{Events: b.Events, Areas: make([]fence.Area, len(b.Events))}
	p, _, err := whole.Encode()
	require.NoError(t, err)
	q, _, err := same.Encode()
	require.NoError(t, err)
	require.Equal(t, p, q, "area 0 need not be named")

	for _, bad := range []stream.Batch{
		{Events: b.Events, Areas: []fence.Area{0, 1}},
		{Events: b.Events, Areas: []fence.Area{0, 2, 9, 2, 9}},
	} {
		var argument *fence.ArgumentError
		_, _, err := bad.Encode()
		require.ErrorAs(t, err, &argument)
		require.Equal(t, "areas", argument.Field)
	}
}

// TestDecoderRefuses cuts and bends every golden encoding, and some bytes made for the purpose.
func TestDecoderRefuses(t *testing.T) {
	t.Parallel()
	batch := func(payload, private string) {
		t.Helper()
		b, err := stream.DecodeBatch(entryOf([]byte(payload), []byte(private)))
		var format *fence.FormatError
		require.ErrorAs(t, err, &format, "%q %q", payload, private)
		require.NotEmpty(t, format.Detail)
		require.Nil(t, b)
	}
	for _, g := range golden[goldenBatch](t, "batches.json") {
		for n := 1; n < len(g.Payload); n++ {
			batch(string(g.Payload[:n]), string(g.Private))
		}
		for n := 1; n < len(g.Private); n++ {
			batch(string(g.Payload), string(g.Private[:n]))
		}
		batch(string(g.Payload)+"\x00", string(g.Private))
		batch(string(g.Payload), string(g.Private)+"\x00")
	}
	for _, bad := range []string{
		"\x00", "\x00\x00", // an area without events
		"\x00\x80\x00", // a number that is longer than it needs to be
		"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a length of 2^64-1
		"\x00\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", // a number without end
		"\x00\x05\x01a",              // longer than the payload
		"\x00\x02\x02a",              // an event longer than its area
		"\x00\x02\x01a\x00\x02\x01b", // an area twice
		"\x01\x02\x01a\x00\x02\x01b", // areas out of order
		"\x00\x84\x80\x04\x81\x80\x04" + strings.Repeat("x", stream.MaxEvent+1), // a large event
	} {
		batch(bad, "")
	}
	for _, bad := range []string{
		"\x01\x02\x00\x01a", "\x01\x03\x05\x01a", // no outcome, an outcome that there is not
		"\x01\x02\x01\x00", // no action ID
		"\x01\x43\x01\x41" + strings.Repeat("x", stream.MaxActionID+1),
		"\x02\x10" + strings.Repeat("\x00", 15),                  // a claim cut short
		"\x02\x11" + strings.Repeat("\x01", 17),                  // a long claim
		"\x01\x03\x01\x01a\x02\x10" + strings.Repeat("\x01", 16), // a claim beside an outcome
		"\x03\x01?", "\x7f\x01?", "\x00\x01?", // a section that an owner must know
	} {
		batch("", bad)
	}
	batch("\x00\x02\x01a", "\x02\x10"+strings.Repeat("\x01", 16)) // a claim beside an event
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	ok := stream.Resolution{ActionID: "a", Outcome: stream.Applied}
	event := make([]byte, stream.MaxEvent)
	for what, b := range map[string]*stream.Batch{
		"a large event": {Events: [][]byte{make([]byte, stream.MaxEvent+1)}},
		"no action ID":  {Resolutions: []stream.Resolution{ok, {Outcome: stream.Applied}}},
		"a long action ID": {Resolutions: []stream.Resolution{{ActionID: strings.Repeat("x", stream.MaxActionID+1),
			Outcome: stream.Applied}}},
		"no outcome":         {Resolutions: []stream.Resolution{{ActionID: "a"}}},
		"a claim and more":   {Claim: fence.NewClaimID(), Resolutions: []stream.Resolution{ok}},
		"an unknown outcome": {Resolutions: []stream.Resolution{{ActionID: "a", Outcome: 5}}},
		"too much of it all": {Events: slices.Repeat([][]byte{event}, 16)},
	} {
		payload, private, err := b.Encode()
		require.ErrorIs(t, err, fence.ErrInvalidArgument, what)
		require.Nil(t, payload, what)
		require.Nil(t, private, what)
	}
	// The largest of everything.
	largest := &stream.Batch{Events: slices.Repeat([][]byte{event}, 15),
		Resolutions: []stream.Resolution{{ActionID: strings.Repeat("x", stream.MaxActionID),
			Outcome: stream.Redirected}}}
	payload, private, err := largest.Encode()
	require.NoError(t, err)
	largest.Events = append(largest.Events, make([]byte, fence.MaxPayload-len(payload)-len(private)-3))
	payload, private, err = largest.Encode()
	require.NoError(t, err)
	require.Equal(t, fence.MaxPayload, len(payload)+len(private))
	decoded, err := stream.DecodeBatch(entryOf(payload, private))
	require.NoError(t, err)
	require.Equal(t, largest, decoded)
}

func TestSnapshotBlob(t *testing.T) {
	t.Parallel()
	for _, parts := range [][2]string{{"", ""}, {"state", ""}, {"", "owners"}, {strings.Repeat("s", 300), "owners"}} {
		blob := stream.AppendSnapshot(nil, []byte(parts[0]), []byte(parts[1]))
		game, private, err := stream.OpenSnapshot(blob)
		require.NoError(t, err)
		require.Equal(t, parts, [2]string{string(game), string(private)})
		require.False(t, stream.Divided(blob))
	}
	list := fence.AppendPart(fence.AppendPart(nil, 1, []byte("one")), 9, []byte("nine"))
	for _, list := range [][]byte{nil, list} {
		blob := stream.AppendDivided(nil, list, []byte("owners"))
		game, private, err := stream.OpenSnapshot(blob)
		require.NoError(t, err)
		require.Equal(t, string(list), string(game))
		require.Equal(t, "owners", string(private))
		require.True(t, stream.Divided(blob))
	}
	require.False(t, stream.Divided(nil))
	game, private, err := stream.OpenSnapshot(nil)
	require.NoError(t, err)
	require.Empty(t, game)
	require.Empty(t, private)
	for _, bad := range []string{"\x01", "\x03\x00", "\x01\x02a", "\x01\x80\x00", "\x02\x01a"} {
		var format *fence.FormatError
		_, _, err := stream.OpenSnapshot([]byte(bad))
		require.ErrorAs(t, err, &format, "%q", bad)
	}
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for o, name := range map[stream.Outcome]string{stream.Applied: "applied", stream.Fizzled: "fizzled",
		stream.Rejected: "rejected", stream.Redirected: "redirected"} {
		require.Equal(t, name, o.String())
		require.True(t, o.Valid())
		parsed, err := stream.ParseOutcome(name)
		require.NoError(t, err)
		require.Equal(t, o, parsed)
	}
	for _, o := range []stream.Outcome{0, 5, 255} {
		require.False(t, o.Valid())
		require.NotEmpty(t, o.String())
		_, err := stream.ParseOutcome(o.String())
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	}
	_, err := stream.ParseOutcome("")
	require.Error(t, err)
}

func TestMarksAndLeases(t *testing.T) {
	t.Parallel()
	for _, c := range []stream.Consumer{stream.BridgeAcked, stream.BridgePending, stream.RelayMember("a"),
		stream.Checkpointed} {
		for seq, ok := range map[fence.Seq]bool{0: true, fence.FarSeq: true, fence.FarSeq + 1: false} {
			require.Equal(t, ok, (&stream.MarkWrite{Tile: 1, Consumer: c, Seq: seq}).Validate() == nil)
		}
	}
	require.Error(t, (&stream.MarkWrite{Tile: 1, Consumer: stream.ConsumerGroup}).Validate())
	require.NotContains(t, stream.Kinds(), stream.ConsumerGroup)
}

// allocated is how many bytes the slices of a decoded batch take, apart from what they share with the
// input.
func allocated(b *stream.Batch) int {
	n := 24*cap(b.Events) + 24*cap(b.Resolutions)
	for _, r := range b.Resolutions {
		n += len(r.ActionID)
	}
	return n
}

// FuzzDecodeBatch: what is decoded, and was written by this release, encodes to the same bytes, and no input makes
// the decoder take more memory than a fixed multiple of its own size.
func FuzzDecodeBatch(f *testing.F) {
	for _, g := range golden[goldenBatch](f, "batches.json") {
		f.Add([]byte(g.Payload), []byte(g.Private))
	}
	f.Fuzz(func(t *testing.T, payload, private []byte) {
		b, err := stream.DecodeBatch(entryOf(payload, private))
		if err != nil {
			require.Nil(t, b)
			return
		}
		require.LessOrEqual(t, allocated(b), 50*(len(payload)+len(private)+1))
		again, private2, err := b.Encode()
		require.NoError(t, err)
		back, err := stream.DecodeBatch(entryOf(again, private2))
		require.NoError(t, err)
		require.Equal(t, b, back)
		if len(payload) > 0 && payload[0] == 0 && len(again) == len(payload) {
			require.Equal(t, payload, again)
		}
	})
}

// FuzzOpenSnapshot: what can be opened is what AppendSnapshot writes.
func FuzzOpenSnapshot(f *testing.F) {
	f.Add([]byte("\x01\x04gameowners"))
	f.Fuzz(func(t *testing.T, blob []byte) {
		game, private, err := stream.OpenSnapshot(blob)
		switch {
		case err != nil || len(blob) == 0:
		case stream.Divided(blob):
			require.Equal(t, blob, stream.AppendDivided(nil, game, private))
		default:
			require.Equal(t, blob, stream.AppendSnapshot(nil, game, private))
		}
	})
}
