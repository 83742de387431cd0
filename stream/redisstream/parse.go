package redisstream

import (
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// parseEntry reads a stream entry, or says why it cannot be read.
func parseEntry(tile fence.TileID, m *redis.XMessage) (fence.Entry, *stream.Poison) {
	f := fields{v: m.Values}
	e := fence.Entry{Tick: fence.Tick(f.number("tick")), Events: int(f.number("events")), Committed: int64(f.number("at")),
		Rebase: f.v["rebase"] == "1", Payload: []byte(f.text("payload"))}
	e.Epoch = fence.Epoch(f.number("epoch"))
	e.Chain = f.chain("chain")
	e.Prev = f.position("prev")
	id, ok := strings.CutSuffix(m.ID, "-0")
	seq, err := fence.ParseNumber(id)
	if !ok || err != nil {
		f.bad = "id " + m.ID + " is not <sequence>-0"
		seq = uint64(sequenceOf(m.ID)) // whatever it is, reading goes on after it
	}
	e.Seq = fence.Seq(seq)
	if f.bad == "" && (e.Epoch == 0 || e.Seq == 0 || e.Events > fence.MaxEvents || len(e.Payload) > fence.MaxPayload) {
		f.bad = "epoch, sequence, events or payload out of range"
	}
	if f.bad == "" {
		return e, nil
	}
	p := &stream.Poison{Tile: tile, Seq: e.Seq, Epoch: e.Epoch, Reason: f.bad, Fields: map[string]string{}}
	for k, v := range m.Values {
		s, _ := v.(string)
		p.Fields[k] = s
	}
	return fence.Entry{}, p
}

// fields reads named values; bad keeps the first complaint.
type fields struct {
	v   map[string]any
	bad string
}

func (f *fields) text(name string) string {
	s, ok := f.v[name].(string)
	if !ok && f.bad == "" {
		f.bad = "field " + name + " is missing"
	}
	return s
}

func (f *fields) fail(name string, err error) {
	if err != nil && f.bad == "" {
		f.bad = "field " + name + ": " + err.Error()
	}
}

func (f *fields) number(name string) uint64 {
	n, err := fence.ParseNumber(f.text(name))
	f.fail(name, err)
	return n
}

func (f *fields) chain(name string) fence.Chain {
	c, err := fence.ParseChain(f.text(name))
	f.fail(name, err)
	return c
}

func (f *fields) position(name string) fence.Position {
	p, err := fence.ParsePosition(f.text(name))
	f.fail(name, err)
	return p
}

func parseSnapshot(tile fence.TileID, m map[string]string) (fence.Snapshot, error) {
	v := make(map[string]any, len(m))
	for k, s := range m {
		v[k] = s
	}
	f := fields{v: v}
	s := fence.Snapshot{Tick: fence.Tick(f.number("tick")), Contact: f.text("contact"), Sum: f.text("sum"),
		Taken: int64(f.number("at")), Blob: []byte(f.text("blob"))}
	s.Epoch = fence.Epoch(f.number("epoch"))
	s.Seq = fence.Seq(f.number("seq"))
	s.Chain = f.chain("chain")
	if f.bad != "" {
		return fence.Snapshot{}, &fence.CorruptError{Tile: tile, What: "snapshot", At: s.Position, Detail: f.bad}
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
	f := fields{v: map[string]any{"epoch": v[0], "seq": v[1], "chain": v[2]}}
	p := fence.Position{Epoch: fence.Epoch(f.number("epoch")), Seq: fence.Seq(f.number("seq")), Chain: f.chain("chain")}
	if f.bad != "" {
		return fence.Position{}, &fence.CorruptError{Tile: tile, What: "snapshot", At: p, Detail: f.bad}
	}
	return p, nil
}

// sequenceOf reads the sequence of a stream ID, whatever comes after it.
func sequenceOf(id string) fence.Seq {
	major, _, _ := strings.Cut(id, "-")
	seq, _ := strconv.ParseUint(major, 10, 64) // Redis wrote it
	return fence.Seq(seq)
}
