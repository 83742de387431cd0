package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// history is a tile's history. It is a true one, so that clients which check chains can.
type history struct {
	fence.TileID
	at   fence.Position
	tick fence.Tick
}

func newHistory() *history { return &history{TileID: 0x85283473fffffff} }

// jump goes to a position without showing what led there: before the first Sync, or while the client is away.
func (h *history) jump(epoch fence.Epoch, seq fence.Seq) {
	h.at = fence.Position{Epoch: epoch, Seq: seq, Chain: fence.Chain(uint64(epoch)*1_000_000 + uint64(seq))}
}

// batch is the next one. An event is its area, a colon and its text; events of an area follow each other.
func (h *history) batch(events ...string) fence.Entry { return h.batchOf(h.at.Epoch, events...) }

// takeOver is the first batch of another owner.
func (h *history) takeOver(epoch fence.Epoch, events ...string) fence.Entry {
	return h.batchOf(epoch, events...)
}

func (h *history) batchOf(epoch fence.Epoch, events ...string) fence.Entry {
	parts := map[fence.Area][]byte{}
	for _, e := range events {
		var area fence.Area
		var text string
		if _, err := fmt.Sscanf(strings.Replace(e, ":", " ", 1), "%d %s", &area, &text); err != nil {
			panic(err)
		}
		parts[area] = append(append(parts[area], byte(len(text))), text...)
	}
	var payload []byte
	for area := range fence.Area(255) {
		if len(parts[area]) > 0 {
			payload = fence.AppendPart(payload, area, parts[area])
		}
	}
	return h.append(fence.Entry{Position: fence.Position{Epoch: epoch}, Payload: payload})
}

func (h *history) append(e fence.Entry) fence.Entry {
	h.tick++
	e.Tile, e.Kind, e.Prev, e.Tick = h.TileID, fence.KindBatch, h.at, h.tick
	e.Position.Seq = h.at.Seq + 1
	e.At = fence.FromMillis(1_700_000_000_000 + int64(h.tick)*500)
	e.Private = []byte("\x01\x06\x01\x040b54") // so that the sum of what is hidden counts
	e = fence.NewEntry(e)
	h.at = e.Position
	return e
}

// frame is a message with a batch, as a client that watches some areas is sent it; none: all.
func frame(e fence.Entry, areas ...fence.Area) *relaypb.ServerMessage {
	w := e.Watched(fence.Areas(areas...))
	return &relaypb.ServerMessage{Tile: e.Tile.String(),
		Body: &relaypb.ServerMessage_Frame{Frame: relaypb.FromEntry(&w)}}
}

// scratch is a Sync with the state at a position, and batches that follow it.
func (h *history) scratch(from fence.Position, blob string, tail ...fence.Entry) *relaypb.ServerMessage {
	m := h.missed(from, tail...)
	s := m.GetSync()
	s.Replace, s.Tick, s.Blob, s.Sum = true, uint64(h.tick), []byte(blob), fence.Checksum([]byte(blob))
	s.TakenMs = 1_700_000_000_000
	return m
}

// missed is a Sync with the batches that follow a position.
func (h *history) missed(from fence.Position, tail ...fence.Entry) *relaypb.ServerMessage {
	s := &relaypb.Sync{From: relaypb.FromPosition(from), OwnerEpoch: uint64(h.at.Epoch), OwnerContact: "owner:9000"}
	end := from
	for _, e := range tail {
		w := e.Watched(fence.AreaSet{})
		s.Tail = append(s.Tail, relaypb.FromEntry(&w))
		end = e.Position
	}
	s.Position = relaypb.FromPosition(end)
	return &relaypb.ServerMessage{Tile: h.String(), Body: &relaypb.ServerMessage_Sync{Sync: s}}
}

// refusal is an Error about the tile.
func (h *history) refusal(code relaypb.Code) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Tile: h.String(), Body: &relaypb.ServerMessage_Error{
		Error: &relaypb.Error{Code: code, Message: "for a log"}}}
}

func heartbeat(interval time.Duration) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Heartbeat{
		Heartbeat: &relaypb.Heartbeat{IntervalMs: uint32(interval.Milliseconds())}}}
}

// sends sends messages of a relay.
func (p *peer) sends(messages ...*relaypb.ServerMessage) {
	for _, m := range messages {
		p.s.note("send     %s", protojson.MarshalOptions{}.Format(m))
		b, err := p.encoding.Append(nil, m)
		if err != nil {
			panic(err)
		}
		p.write(b)
	}
}

// sendsNews sends what a later release might: a body, and a field of a message, that this one does not have.
func (p *peer) sendsNews() {
	p.s.note("send     a message and a field of a later release")
	if p.encoding == relaypb.JSON {
		p.write([]byte(`{"tile":"85283473fffffff","weather":{"rain":true}}`))
		p.write([]byte(`{"goAwayLater":{},"heartbeat":{"intervalMs":10000,"reason":{"words":["quiet",1,null]}}}`))
		return
	}
	p.write(protowire.AppendString(protowire.AppendTag(nil, 99, protowire.BytesType), "rain"))
	b, _ := p.encoding.Append(nil, heartbeat(10*time.Second))
	b = protowire.AppendVarint(protowire.AppendTag(b, 98, protowire.VarintType), 1<<40)
	b = protowire.AppendFixed64(protowire.AppendTag(b, 97, protowire.Fixed64Type), 7)
	p.write(protowire.AppendFixed32(protowire.AppendTag(b, 96, protowire.Fixed32Type), 7))
}

// held is what a client says that it holds of a tile.
type held struct {
	tile  fence.TileID
	at    fence.Position
	floor fence.Epoch
	areas []uint32 // ascending, with area 0; none: all
}

func (h held) String() string {
	return fmt.Sprintf("%s at %d/%d/%d, floor %d, areas %v", h.tile, h.at.Epoch, h.at.Seq, uint64(h.at.Chain), h.floor,
		h.areas)
}

func (h held) equals(o held) bool {
	return h.tile == o.tile && h.at == o.at && h.floor == o.floor && slices.Equal(h.areas, o.areas)
}

// holds is what is expected of a client that has followed the history.
func (h *history) holds() held { return held{tile: h.TileID, at: h.at, floor: h.at.Epoch} }

// forgot is what is expected of one that has only the floor left.
func (h *history) forgot() held { return held{tile: h.TileID, floor: h.at.Epoch} }

func (h held) watching(areas ...uint32) held {
	h.areas = areas
	return h
}

func toHeld(name string, at *relaypb.Position, floor uint64, areas []uint32) held {
	id, _ := fence.ParseTileID(name)
	h := held{tile: id, at: at.Fence(), areas: slices.Clone(areas)}
	h.floor = max(fence.Epoch(floor), h.at.Epoch)
	if len(h.areas) > 0 && !slices.Contains(h.areas, 0) {
		h.areas = append(h.areas, 0) // it comes with any
	}
	slices.Sort(h.areas)
	return h
}

// show is a message as text, for the transcript.
func (p *peer) show(b []byte) string {
	if p.encoding != relaypb.Binary {
		return string(b)
	}
	m := &relaypb.ClientMessage{}
	if err := p.encoding.Decode(b, m); err != nil {
		return fmt.Sprintf("%x, which cannot be read: %v", b, err)
	}
	return protojson.MarshalOptions{}.Format(m)
}

// message is the client's next one. A Subscribe of nothing does not count.
func (p *peer) message(within time.Duration, want string) *relaypb.ClientMessage {
	for {
		b := p.next(within, want)
		m := &relaypb.ClientMessage{}
		if err := p.encoding.Decode(b, m); err != nil {
			p.s.fail("the client sent what cannot be read: %w", err)
		}
		if s := m.GetSubscribe(); s == nil || len(s.GetTiles())+len(s.GetHeld()) > 0 {
			return m
		}
	}
}

// subscribes expects Subscribes, one or more, that name exactly these tiles.
func (p *peer) subscribes(want ...held) { p.subscribesWithin(p.s.patience, want...) }

func (p *peer) subscribesWithin(within time.Duration, want ...held) {
	for len(want) > 0 {
		what := fmt.Sprintf("a Subscribe of %s", want[0])
		s := p.message(within, what).GetSubscribe()
		if s == nil {
			p.s.fail("want %s, got another message", what)
		}
		var got []held
		for _, t := range s.GetTiles() {
			got = append(got, toHeld(t, nil, 0, nil))
		}
		for _, h := range s.GetHeld() {
			got = append(got, toHeld(h.GetTile(), h.GetPosition(), h.GetEpochFloor(), h.GetAreas()))
		}
		for _, g := range got {
			i := slices.IndexFunc(want, g.equals)
			if i < 0 {
				p.s.fail("want %s, got one of %s", what, g)
			}
			want = slices.Delete(slices.Clone(want), i, i+1)
		}
	}
}

// resyncs expects a Resync. It may name nothing, with which a relay can always do, but not another position.
func (p *peer) resyncs(want held) { p.resyncsWithin(p.s.patience, want) }

func (p *peer) resyncsWithin(within time.Duration, want held) {
	what := fmt.Sprintf("a Resync of %s", want)
	r := p.message(within, what).GetResync()
	if r == nil {
		p.s.fail("want %s, got another message", what)
	}
	got := toHeld(r.GetTile(), r.GetPosition(), r.GetEpochFloor(), nil)
	if got.tile != want.tile || got.floor != want.floor || !got.at.IsZero() && got.at != want.at {
		p.s.fail("want %s, got one of %s", what, got)
	}
}

// watches expects a Watch.
func (p *peer) watches(h *history, number uint32, areas ...uint32) {
	what := fmt.Sprintf("Watch %d of areas %v", number, areas)
	w := p.message(p.s.patience, what).GetWatch()
	got := toHeld(w.GetTile(), nil, 0, w.GetAreas())
	if w == nil || got.tile != h.TileID || w.GetNumber() != number || !slices.Equal(got.areas, areas) {
		p.s.fail("want %s, got number %d of %s", what, w.GetNumber(), got)
	}
}

// unsubscribes expects that a tile is left.
func (p *peer) unsubscribes(h *history) {
	u := p.message(p.s.patience, "an Unsubscribe").GetUnsubscribe()
	if !slices.Equal(u.GetTiles(), []string{h.String()}) {
		p.s.fail("want an Unsubscribe of %s, got %v", h, u)
	}
}
