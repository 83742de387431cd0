package relay

import (
	"bytes"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
	"github.com/tilefence/tilefence/internal/socket"
)

// batch is one committed batch as a hub keeps it and sends it: the same bytes to every client of a form that
// watches the same areas. What it makes, when the first client needs it, is guarded by the hub's mutex.
type batch struct {
	fence.Entry               // as watchers are sent it
	came        time.Time     // by fan-out; zero: read from the store
	sent        [forms][]byte // for clients that watch every area
	parts       []part        // of the payload
}

// someAreas names one form in which a batch is sent.
type someAreas struct {
	form  form
	areas fence.AreaSet
}

// part is a part of the payload, and its sum.
type part struct {
	fence.Part
	sum uint64
}

// bytes returns the batch as a WebSocket frame for a client that watches some areas. made is what has been returned for
// others.
func (b *batch) bytes(made map[someAreas][]byte, f form, areas fence.AreaSet) []byte {
	if areas.All() {
		return b.whole(f)
	}
	key := someAreas{f, areas}
	if made[key] == nil {
		s := takeScratch()
		made[key] = prepare(f, frameMessage(b.Tile, b.frame(s, areas)))
		s.free()
	}
	return made[key]
}

// frame is the batch with the parts of some areas, and the sum of the others.
func (b *batch) frame(s *scratch, areas fence.AreaSet) *relaypb.Frame {
	f := s.frame(&b.Entry)
	if areas.All() {
		return f
	}
	if b.parts == nil {
		b.divide()
	}
	begin := len(s.payload)
	for i := range b.parts {
		if p := &b.parts[i]; areas.Has(p.Area) && p.Content != nil {
			s.payload = append(s.payload, p.Whole...)
		} else {
			f.Rest += p.sum
		}
	}
	f.Payload = s.payload[begin:]
	return f
}

// divide takes the payload apart.
func (b *batch) divide() {
	n := 0
	for range fence.Parts(b.Payload) {
		n++
	}
	b.parts = make([]part, 0, n)
	for p := range fence.Parts(b.Payload) {
		b.parts = append(b.parts, part{p, fence.Sum(p.Whole)})
	}
}

// whole is the batch as a WebSocket frame for clients that watch every area.
func (b *batch) whole(f form) []byte {
	if b.sent[f] == nil {
		b.sent[f] = prepare(f, frameMessage(b.Tile, relaypb.FromEntry(&b.Entry)))
		if rest, ok := bytes.CutSuffix(b.sent[f], b.Payload); ok {
			b.Payload, b.parts = b.sent[f][len(rest):], nil // it is the message's last field: keep it once
		}
	}
	return b.sent[f]
}

func frameMessage(tile fence.TileID, f *relaypb.Frame) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Tile: tile.String(), Body: &relaypb.ServerMessage_Frame{Frame: f}}
}

func syncMessage(tile fence.TileID, s *relaypb.Sync) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Tile: tile.String(), Body: &relaypb.ServerMessage_Sync{Sync: s}}
}

func sessionMessage(left time.Duration) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Session{
		Session: &relaypb.Session{ExpiresInMs: uint64(left.Milliseconds())}}}
}

func errorMessage(tile string, code relaypb.Code, text string) *relaypb.ServerMessage {
	return &relaypb.ServerMessage{Tile: strings.ToValidUTF8(tile, "?"),
		Body: &relaypb.ServerMessage_Error{Error: &relaypb.Error{Code: code, Message: strings.ToValidUTF8(text, "?")}}}
}

// form is how messages are written to a client: an encoding, and whether large ones are compressed.
type form uint8

// deflated is added to an encoding if the client takes permessage-deflate (RFC 7692). Every message is compressed by
// itself, so that the result is the same for all clients, and costs a connection no memory.
const deflated form = 4

const forms = deflated + form(relaypb.JSON) + 1

func formOf(e relaypb.Encoding, deflate bool) form {
	if deflate {
		return form(e) | deflated
	}
	return form(e)
}

func (f form) encoding() relaypb.Encoding { return relaypb.Encoding(f &^ deflated) }

// prepare encodes a message together with its WebSocket header. A server's frames are not masked, so
// the result is the same for every client and is written to their sockets as it is.
func prepare(f form, m *relaypb.ServerMessage) []byte {
	buf, err := f.encoding().Append(make([]byte, socket.MaxHeader, socket.MaxHeader+proto.Size(m)), m)
	if err != nil {
		// Only a string that is not UTF-8 can do this, and those from outside are cleaned before.
		return prepare(f, errorMessage("", relaypb.Code_CODE_UNAVAILABLE, "a message could not be encoded"))
	}
	op := byte(socket.OpBinary)
	if f.encoding() == relaypb.JSON {
		op = socket.OpText
	}
	if f&deflated != 0 {
		return socket.Pack(buf, op)
	}
	return socket.Seal(buf, op)
}

// scratch is what the frames of one message are put together in, before the message is encoded, and then those of
// another: a relay with thousands of clients that watch different areas makes so many that most of the collector's work
// was for these.
type scratch struct {
	frames  []*relaypb.Frame
	used    int    // of the frames
	payload []byte // of all frames
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// frame is a frame with an entry.
func (s *scratch) frame(e *fence.Entry) *relaypb.Frame {
	if s.used == len(s.frames) {
		s.frames = append(s.frames, &relaypb.Frame{})
	}
	f := s.frames[s.used]
	s.used++
	f.Set(e)
	return f
}

// free ends the use of all frames.
func (s *scratch) free() {
	s.reset()
	scratches.Put(s)
}

func (s *scratch) reset() {
	for _, f := range s.frames[:s.used] {
		f.Payload = nil // it may be the batch's own
	}
	s.used, s.payload = 0, s.payload[:0]
}
