// Package relaypb is the client protocol of a Tilefence relay: the messages generated from view.proto,
// the names of its WebSocket subprotocols and close codes, and the conversions to the fence's own types.
//
// A Go program watches tiles with package relayclient and needs this package only for the codes. A
// client in another language generates its messages from view.proto; what it has to do is short:
//
//   - Open a WebSocket with the subprotocol [Subprotocol] (binary messages) or [SubprotocolJSON] (text).
//   - Send Subscribe, or name it in the handshake's URL ([SubscribeURL]). For each tile comes a Sync: replace or
//     extend the state as it says, and hold its position.
//   - For each Frame: if its prev equals the position held, in all three parts, apply it and hold its
//     position. Otherwise ignore it and send one Resync with the position held; a Sync comes back.
//   - Remember the highest epoch held of each tile. Ignore a Sync or Frame of a lower epoch: the relay is cut
//     off from the store. Ask again later, or another relay.
//   - To watch some areas of a tile, name them in Subscribe.held, and change them by Watch: drop the state of areas
//     that are left, and take up others from the Sync that opens them.
//   - Answer pings (every WebSocket library does) and keep reading: a relay drops the frames of a client
//     that does not, and brings it up to date with a Sync later.
//   - A Heartbeat says how long a connection is silent at most. After two and a half times that without a message or a
//     ping it is lost: connect again.
//   - On GoAway, or on any close, connect again after a random delay, naming the positions still held in
//     Subscribe.held, so that only what was missed is sent.
//
// Messages are plain data; nothing here does I/O or starts goroutines. To test a client against the real
// thing, serve a relay over the in-process back ends: see the example of package relayclient.
package relaypb

import (
	"math"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
)

// The WebSocket subprotocols. The number is the protocol's major version: within it messages only grow.
const (
	Subprotocol     = "tilefence.view.v1"
	SubprotocolJSON = "tilefence.view.v1.json"
)

// Status codes with which a relay closes a connection. Other codes are the WebSocket library's own, such
// as 1009 for a message over the relay's limit.
const (
	CloseGoingAway  = 1001 // the relay stops: connect to another one
	CloseTryLater   = 1013 // the game does not answer in time, or the relay needs the place for another client
	ClosePolicy     = 1008 // the client broke the protocol or a limit; an Error before it says which
	CloseOverloaded = 1013 // the relay has no room: try later, or another one
	CloseTooSlow    = 4001 // the client did not read fast enough for too long
	CloseIdle       = 4002 // the client did not answer pings
	CloseExpired    = 4003 // the session has expired: connect again with a new token
	CloseEnded      = 4004 // the game ended the session: connect again, which it may refuse
)

// Encoding is how messages are written on one connection. Zero is not an encoding.
type Encoding uint8

// The encodings.
const (
	Binary Encoding = 1 // protobuf, in binary WebSocket messages
	JSON   Encoding = 2 // protobuf JSON mapping, in text WebSocket messages
)

// EncodingOf returns the encoding a subprotocol stands for; ok is false for any other name.
func EncodingOf(subprotocol string) (e Encoding, ok bool) {
	switch subprotocol {
	case Subprotocol:
		return Binary, true
	case SubprotocolJSON:
		return JSON, true
	}
	return 0, false
}

// Subprotocol returns the name of the WebSocket subprotocol that uses the encoding.
func (e Encoding) Subprotocol() string {
	if e == JSON {
		return SubprotocolJSON
	}
	return Subprotocol
}

// Append appends the encoded message to dst. Only a string that is not valid UTF-8 can make it fail.
func (e Encoding) Append(dst []byte, m proto.Message) ([]byte, error) {
	if e == JSON {
		return protojson.MarshalOptions{}.MarshalAppend(dst, m)
	}
	return proto.MarshalOptions{}.MarshalAppend(dst, m)
}

// Decode reads a message of this encoding into m, which it resets first. Fields it does not know are
// ignored, so that a newer peer is understood. Byte fields are copies: data may be reused.
func (e Encoding) Decode(data []byte, m proto.Message) error {
	if e == JSON {
		return protojson.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}

// FromPosition converts a position; the beginning becomes nil, which is absent on the wire.
func FromPosition(p fence.Position) *Position {
	if p.IsZero() {
		return nil
	}
	return &Position{Epoch: uint64(p.Epoch), Seq: uint64(p.Seq), Chain: uint64(p.Chain)}
}

// Fence converts the position back; nil is the beginning.
func (x *Position) Fence() fence.Position {
	return fence.Position{Epoch: fence.Epoch(x.GetEpoch()), Seq: fence.Seq(x.GetSeq()),
		Chain: fence.Chain(x.GetChain())}
}

// FromEntry converts an entry of which the private part was left out (fence.Entry.Watched). The payload is shared,
// not copied.
func FromEntry(e *fence.Entry) *Frame {
	f := &Frame{}
	f.Set(e)
	return f
}

// Set makes the frame that of an entry, as FromEntry does, and allocates nothing for one that has had an entry before.
func (x *Frame) Set(e *fence.Entry) {
	x.Position, x.Prev = x.Position.set(e.Position), x.Prev.set(e.Prev)
	x.Tick, x.AtMs = uint64(e.Tick), uint64(fence.Millis(e.At))
	x.Kind, x.Hidden, x.Rest, x.Payload = uint32(e.Kind), e.Hidden, e.Rest, e.Payload
}

func (x *Position) set(p fence.Position) *Position {
	if x == nil || p.IsZero() {
		return FromPosition(p)
	}
	x.Epoch, x.Seq, x.Chain = uint64(p.Epoch), uint64(p.Seq), uint64(p.Chain)
	return x
}

// FromAreas converts a set of areas; every area becomes nil, which is absent on the wire.
func FromAreas(s fence.AreaSet) []uint32 {
	var list []uint32
	for _, a := range s.List() {
		list = append(list, uint32(a))
	}
	return list
}

// ToAreas converts the set back. A number over 255 is a *fence.ArgumentError.
func ToAreas(list []uint32) (fence.AreaSet, error) {
	areas := make([]fence.Area, len(list))
	for i, n := range list {
		if n > math.MaxUint8 {
			return fence.AreaSet{}, &fence.ArgumentError{Field: "areas", Value: n, Want: "numbers from 0 to 255"}
		}
		areas[i] = fence.Area(n)
	}
	return fence.Areas(areas...), nil
}

// Entry converts the frame of a tile back. The payload is shared, not copied. The result is as trustworthy as its
// sender: fence.Entry.Verify checks it.
func (x *Frame) Entry(tile fence.TileID) fence.Entry {
	return fence.Entry{
		Tile:     tile,
		Kind:     fence.Kind(min(x.GetKind(), math.MaxUint8)),
		Position: x.GetPosition().Fence(),
		Prev:     x.GetPrev().Fence(),
		Tick:     fence.Tick(x.GetTick()),
		At:       fence.FromMillis(int64(min(x.GetAtMs(), fence.MaxNumber))),
		Payload:  x.GetPayload(),
		Hidden:   x.GetHidden(),
		Rest:     x.GetRest(),
	}
}
