package stream_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

func TestAlarming(t *testing.T) {
	for _, row := range []struct {
		bytes, bound int64
		want         bool
	}{{0, 16 << 20, false}, {12<<20 - 1, 16 << 20, false}, {12 << 20, 16 << 20, true}, {17 << 20, 16 << 20, true},
		{1 << 40, 0, false}, {0, 0, false}} {
		trimmed := stream.Trimmed{Bytes: row.bytes}
		require.Equal(t, row.want, trimmed.Alarming(row.bound), "%+v", row)
	}
}

func TestCompareConsumers(t *testing.T) {
	want := []stream.Consumer{stream.BridgeAcked, stream.BridgePending, stream.RelayMember("1"),
		stream.RelayMember("B"), stream.RelayMember("a"), stream.Checkpointed, stream.ConsumerGroup}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, stream.CompareConsumers)
	require.Equal(t, want, got)
}

// TestFloorNamesTheHolderThatTrimNames: a mark as far as the snapshot does not hold it.
func TestFloorNamesTheHolderThatTrimNames(t *testing.T) {
	s := stream.Stat{HasSnapshot: true, Snapshot: stream.SnapshotHead{Position: fence.Position{Seq: 9}}}
	s.Marks = map[stream.Consumer]stream.Mark{stream.Checkpointed: {Seq: 9}}
	seq, held := s.Floor()
	require.EqualValues(t, 9, seq)
	require.Empty(t, held)
	s.Marks = map[stream.Consumer]stream.Mark{stream.Checkpointed: {Seq: 4}, stream.RelayMember("b"): {Seq: 4},
		stream.RelayMember("a"): {Seq: 4}, stream.BridgeAcked: {Seq: 5}}
	seq, held = s.Floor()
	require.EqualValues(t, 4, seq)
	require.Equal(t, stream.RelayMember("a"), held)
}

func TestMarkWriteValidate(t *testing.T) {
	for _, w := range []stream.MarkWrite{
		{Consumer: stream.BridgeAcked}, {Tile: 1}, {Tile: 1, Consumer: stream.ConsumerGroup},
		{Tile: 1, Consumer: stream.RelayFloor},
		{Tile: 1, Consumer: stream.RelayMember("")}, {Tile: 1, Consumer: stream.RelayMember("a\n")},
		{Tile: 1, Consumer: stream.BridgeAcked, Seq: fence.FarSeq + 1},
		{Tile: 1, Consumer: "bridge:a"}, {Tile: 1, Consumer: "xrelay:a"},
	} {
		require.ErrorIs(t, w.Validate(), fence.ErrInvalidArgument, "%+v", w)
	}
	r := stream.TrimRequest{Tile: 1, Lease: time.Second, MaxBytes: stream.MinMaxBytes}
	require.NoError(t, r.Validate())
	for _, bad := range []int64{-1, 1, stream.MinMaxBytes - 1, fence.MaxNumber + 1} {
		r.MaxBytes = bad
		require.ErrorIs(t, r.Validate(), fence.ErrInvalidArgument, bad)
	}
}
