// Package relaypb is the client protocol of a Tilefence relay: the messages generated from view.proto,
// the names of its WebSocket subprotocols and close codes, and the conversions to the fence's own types.
//
// A Go program watches tiles with package relayclient. A client in another language generates its messages from
// relay/view.proto; the rules that it keeps are in docs/wire.md.
package relaypb

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/url"

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

// SubscribeParam is the parameter of a handshake's URL that holds the client's first Subscribe: the message in binary
// protobuf, whatever the subprotocol, in unpadded base64url (RFC 4648, section 5). The relay then answers the handshake
// and the subscription at once, which saves the client a round trip.
const SubscribeParam = "subscribe"

// SubscribedHeader is in the response to a handshake whose SubscribeParam was taken, with the value "1". A relay of an
// earlier release ignores the parameter: without the header, send the Subscribe as a message.
const SubscribedHeader = "Tilefence-Subscribed"

// MaxSubscribeParam is how many bytes the value of a SubscribeParam may have, so that the request fits everywhere.
const MaxSubscribeParam = 4 << 10

// SubscribeURL returns a relay's URL with a Subscribe in it. ok is false if that is too long, or if raw is not a URL:
// send the message when the connection is there.
func SubscribeURL(raw string, s *Subscribe) (full string, ok bool) {
	u, err := url.Parse(raw)
	if err != nil {
		return raw, false
	}
	data, err := proto.Marshal(s)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(data)) > MaxSubscribeParam {
		return raw, false
	}
	if u.RawQuery != "" {
		u.RawQuery += "&"
	}
	u.RawQuery += SubscribeParam + "=" + base64.RawURLEncoding.EncodeToString(data)
	return u.String(), true
}

// ParseSubscribe reads the value of a SubscribeParam. A *fence.ArgumentError says that it is none.
func ParseSubscribe(value string) (*Subscribe, error) {
	if len(value) > MaxSubscribeParam {
		return nil, &fence.ArgumentError{Field: SubscribeParam, Value: fmt.Sprint(len(value), " bytes"),
			Want: fmt.Sprint("at most ", MaxSubscribeParam)}
	}
	s := &Subscribe{}
	data, err := base64.RawURLEncoding.Strict().DecodeString(value)
	if err == nil {
		err = proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, s)
	}
	if err != nil {
		return nil, &fence.ArgumentError{Field: SubscribeParam, Value: value[:min(len(value), 32)],
			Want: "a Subscribe in binary protobuf, in base64url without padding"}
	}
	return s, nil
}
