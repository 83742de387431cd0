package stream_test

import (
	"encoding/hex"
	"encoding/json"
	"os"
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
	Claim octets
	Bytes octets
}

func (g *goldenBatch) batch(t testing.TB) *stream.Batch {
	b := &stream.Batch{}
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

func TestBatchGolden(t *testing.T) {
	t.Parallel()
	for _, g := range golden[goldenBatch](t, "batches.json") {
		b := g.batch(t)
		encoded, err := stream.AppendBatch([]byte("before"), b)
		require.NoError(t, err)
		require.Equal(t, "before"+string(g.Bytes), string(encoded), g.Name)
		decoded, err := stream.DecodeBatch(g.Bytes)
		require.NoError(t, err)
		require.Equal(t, b, decoded, g.Name)
		require.Equal(t, len(g.Events)+len(g.Resolutions), decoded.Len())
	}
	empty, err := stream.DecodeBatch(nil)
	require.NoError(t, err)
	require.Equal(t, &stream.Batch{}, empty)
}

type goldenFrame struct {
	Name, Tile, Position, Prev string
	Rebase                     bool
	Tick                       fence.Tick
	Events                     int
	Committed                  int64
	Payload, Bytes             octets
}

func (g *goldenFrame) frame(t testing.TB) *stream.Frame {
	f := &stream.Frame{Entry: fence.Entry{Rebase: g.Rebase, Tick: g.Tick, Events: g.Events, Committed: g.Committed, Payload: g.Payload}}
	var err error
	f.Tile, err = fence.ParseTileID(g.Tile)
	require.NoError(t, err)
	f.Position, err = fence.ParsePosition(g.Position)
	require.NoError(t, err)
	f.Prev, err = fence.ParsePosition(g.Prev)
	require.NoError(t, err)
	return f
}

func TestFrameGolden(t *testing.T) {
	t.Parallel()
	for _, g := range golden[goldenFrame](t, "frames.json") {
		f := g.frame(t)
		require.NoError(t, f.Verify(f.Tile), g.Name)
		require.Equal(t, "before"+string(g.Bytes), string(stream.AppendFrame([]byte("before"), f)), g.Name)
		decoded, err := stream.DecodeFrame(g.Bytes)
		require.NoError(t, err)
		require.Equal(t, f, decoded, g.Name)
	}
}

// TestDecodersRefuse cuts and bends every golden encoding, and some bytes made for the purpose.
func TestDecodersRefuse(t *testing.T) {
	t.Parallel()
	refuse := func(what string, err error) {
		t.Helper()
		var format *stream.FormatError
		require.ErrorAs(t, err, &format, what)
		require.NotEmpty(t, format.Detail)
	}
	batch := func(text string) {
		t.Helper()
		b, err := stream.DecodeBatch([]byte(text))
		refuse(text, err)
		require.Nil(t, b)
	}
	frame := func(text string) {
		t.Helper()
		f, err := stream.DecodeFrame([]byte(text))
		refuse(text, err)
		require.Nil(t, f)
	}
	for _, g := range golden[goldenBatch](t, "batches.json") {
		for n := 1; n < len(g.Bytes); n++ {
			batch(string(g.Bytes[:n]))
		}
		batch(string(g.Bytes) + "\x00")
		batch("\x03" + string(g.Bytes[1:]))
	}
	for _, bad := range []string{
		"\x00", "\x01", "\x01\x00", "\x02", "\x02" + strings.Repeat("\x00", 16), // an install without a claim
		"\x01\x80\x00\x00", // a number that is longer than it needs to be
		"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00", // a count of 2^64-1
		"\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", // a number without end
		"\x01\x05\x00\x00\x00",                             // more events than bytes
		"\x01\x01\x81\x80\x04" + strings.Repeat("x", stream.MaxEvent+1) + "\x00",
		"\x01\x00\x01\x00\x01a", "\x01\x00\x01\x05\x01a", // no outcome, an outcome that there is not
		"\x01\x00\x01\x01\x00", // no action ID
		"\x01\x00\x01\x01\x41" + strings.Repeat("x", stream.MaxActionID+1),
		"\x01\x00\x00\x00",
		strings.Repeat("\x01", fence.MaxPayload+1),
	} {
		batch(bad)
	}
	frame("")
	for _, g := range golden[goldenFrame](t, "frames.json") {
		for n := range g.Bytes {
			frame(string(g.Bytes[:n]))
		}
		frame(string(g.Bytes) + "\x00")
		frame("\x02" + string(g.Bytes[1:]))
		frame("\x01\x02" + string(g.Bytes[2:]))
		frame(string(g.Bytes[:2]) + strings.Repeat("\x00", 8) + string(g.Bytes[10:])) // tile zero
	}
}

func TestAppendBatchRefuses(t *testing.T) {
	t.Parallel()
	ok := stream.Resolution{ActionID: "a", Outcome: stream.Applied}
	event := make([]byte, stream.MaxEvent)
	for what, b := range map[string]*stream.Batch{
		"a large event":      {Events: [][]byte{make([]byte, stream.MaxEvent+1)}},
		"no action ID":       {Resolutions: []stream.Resolution{ok, {Outcome: stream.Applied}}},
		"a long action ID":   {Resolutions: []stream.Resolution{{ActionID: strings.Repeat("x", stream.MaxActionID+1), Outcome: stream.Applied}}},
		"no outcome":         {Resolutions: []stream.Resolution{{ActionID: "a"}}},
		"a claim and more":   {Claim: fence.NewClaimID(), Resolutions: []stream.Resolution{ok}},
		"an unknown outcome": {Resolutions: []stream.Resolution{{ActionID: "a", Outcome: 5}}},
		"too much of it all": {Events: [][]byte{event, event, event, event, event, event, event, event, event, event, event, event, event, event, event, event}},
	} {
		dst := append(make([]byte, 0, 100), "before"...)
		got, err := stream.AppendBatch(dst, b)
		require.ErrorIs(t, err, fence.ErrInvalidArgument, what)
		require.Equal(t, "before", string(got), what)
	}
	// The largest of everything.
	largest := &stream.Batch{Events: [][]byte{event}, Resolutions: []stream.Resolution{{ActionID: strings.Repeat("x", stream.MaxActionID), Outcome: stream.Redirected}}}
	for range 14 {
		largest.Events = append(largest.Events, event)
	}
	encoded, err := stream.AppendBatch(nil, largest)
	require.NoError(t, err)
	largest.Events = append(largest.Events, make([]byte, fence.MaxPayload-len(encoded)-3))
	encoded, err = stream.AppendBatch(nil, largest)
	require.NoError(t, err)
	require.Len(t, encoded, fence.MaxPayload)
	decoded, err := stream.DecodeBatch(encoded)
	require.NoError(t, err)
	require.Equal(t, largest, decoded)
}

func TestOutcomes(t *testing.T) {
	t.Parallel()
	for o, name := range map[stream.Outcome]string{stream.Applied: "applied", stream.Fizzled: "fizzled", stream.Rejected: "rejected", stream.Redirected: "redirected"} {
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
	for _, c := range []stream.Consumer{stream.BridgeAcked, stream.BridgePending, stream.RelayMember("a"), stream.Checkpointed} {
		for seq, ok := range map[fence.Seq]bool{0: true, fence.MaxNumber: true, fence.MaxNumber + 1: false} {
			require.Equal(t, ok, (&stream.MarkWrite{Tile: 1, Consumer: c, Seq: seq}).Check() == nil)
		}
	}
	require.Error(t, (&stream.MarkWrite{Tile: 1, Consumer: stream.ConsumerGroup}).Check())
	require.NotContains(t, stream.Kinds(), stream.ConsumerGroup)
}
