package redisstream

import (
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/internal/fields"
)

// parseEntry reads a stream entry, or says why it cannot be read.
func parseEntry(tile fence.TileID, m *redis.XMessage) (fence.Entry, *stream.Poison) {
	id, ok := strings.CutSuffix(m.ID, "-0")
	seq, bad := fence.ParseNumber(id)
	if !ok || bad != nil {
		bad = errors.New("id " + m.ID + " is not <sequence>-0")
		seq = uint64(sequenceOf(m.ID)) // whatever it is, reading goes on after it
	}
	frame, _ := m.Values[stream.FrameField].(string)
	e, err := stream.ParseEntry(tile, fence.Seq(seq), []byte(frame))
	if bad == nil {
		bad = err
	}
	if bad == nil {
		return e, nil
	}
	p := &stream.Poison{Tile: tile, Seq: fence.Seq(seq), Epoch: e.Epoch, Reason: bad.Error(),
		Fields: map[string]string{}}
	for k, v := range m.Values {
		s, _ := v.(string)
		p.Fields[k] = s
	}
	return fence.Entry{}, p
}

// texts looks up what Redis answered by name.
func texts(values map[string]any) func(string) (string, bool) {
	return func(name string) (string, bool) {
		s, ok := values[name].(string)
		return s, ok
	}
}

func parseSnapshot(tile fence.TileID, m map[string]string) (fence.Snapshot, error) {
	f := fields.Reader{Field: func(name string) (string, bool) {
		s, found := m[name]
		return s, found
	}}
	s := fence.Snapshot{Tick: fence.Tick(f.Number("tick")), Contact: f.Text("contact"), Sum: f.Text("sum"),
		Taken: fence.FromMillis(int64(f.Number("at"))), Blob: []byte(f.Text("blob"))}
	s.Epoch = fence.Epoch(f.Number("epoch"))
	s.Seq = fence.Seq(f.Number("seq"))
	s.Chain = f.Chain("chain")
	if f.Err != nil {
		return fence.Snapshot{}, &fence.CorruptError{Tile: tile, What: "snapshot", At: s.Position,
			Detail: f.Err.Error()}
	}
	if err := s.Verify(tile); err != nil {
		return fence.Snapshot{}, err
	}
	return s, nil
}

// parsePositionFields reads epoch, seq and chain of a snapshot; all nil is the zero Position.
func parsePositionFields(tile fence.TileID, v []any) (fence.Position, error) {
	if len(v) == 3 && v[0] == nil && v[1] == nil && v[2] == nil {
		return fence.Position{}, nil
	}
	f := fields.Reader{Field: texts(map[string]any{"epoch": v[0], "seq": v[1], "chain": v[2]})}
	p := fence.Position{Epoch: fence.Epoch(f.Number("epoch")), Seq: fence.Seq(f.Number("seq")), Chain: f.Chain("chain")}
	if f.Err != nil {
		return fence.Position{}, &fence.CorruptError{Tile: tile, What: "snapshot", At: p, Detail: f.Err.Error()}
	}
	return p, nil
}

// sequenceOf reads the sequence of a stream ID, whatever comes after it.
func sequenceOf(id string) fence.Seq {
	major, _, _ := strings.Cut(id, "-")
	seq, _ := strconv.ParseUint(major, 10, 64) // Redis wrote it
	return fence.Seq(seq)
}
