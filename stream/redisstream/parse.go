package redisstream

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
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

// keyed is a command that was sent, and its key.
type keyed struct {
	key string
	cmd redis.Cmder
}

// tileRead is the result of the reads of one tile. err is nil, or a *fence.CorruptError or *fence.StoreError.
type tileRead struct {
	refused redislib.Refused
	err     error
}

// readOf notes the first error of the reads of a tile.
func readOf(tile fence.TileID, reads ...keyed) tileRead {
	r := tileRead{refused: redislib.Refused{Tile: tile}}
	for _, read := range reads {
		if err := read.cmd.Err(); err != nil && !errors.Is(err, redis.Nil) { // MEMORY USAGE of no key is nil
			r.refused.Keys, r.refused.Err = []string{read.key}, err
			break
		}
	}
	return r
}

// explain says of each tile why it could not be read, and returns how many could not because the store did not answer:
// a tile with a key of a wrong type is damaged, which is no reason to give up the others.
func (l *Log) explain(ctx context.Context, op string, reads []tileRead) (failed int) {
	var refused []*redislib.Refused
	for i := range reads {
		if reads[i].refused.Err != nil {
			refused = append(refused, &reads[i].refused)
		}
	}
	redislib.Explain(ctx, l.client, refused)
	for i := range reads {
		switch r := &reads[i]; {
		case r.refused.Err == nil:
		case errors.Is(r.refused.Err, fence.ErrCorrupt):
			r.err = r.refused.Err
		default:
			failed++
			r.err = &fence.StoreError{Op: op, Tile: r.refused.Tile, Outcome: fence.ErrNotApplied, Err: r.refused.Err}
		}
	}
	return failed
}

// explainOne is explain for one tile.
func (l *Log) explainOne(ctx context.Context, op string, read tileRead) error {
	reads := [1]tileRead{read}
	l.explain(ctx, op, reads[:])
	return reads[0].err
}
