//go:build linux

package main

import (
	"encoding/base64"
	"errors"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/tilefence/tilefence/fence"
)

// view is what a swarm reads of a message of the relay: all but content.
type view struct {
	sync           bool // a Sync; otherwise a frame, unless refused says that the relay could not do something
	replace, opens bool
	from, position fence.Position // from: of a frame, the position that it follows
	atMs           uint64         // of a frame
	kind           fence.Kind     // of a frame
	refused        string
}

// The numbers of fields in view.proto.
const (
	serverSync, serverFrame, serverError     = 2, 3, 4
	syncReplace, syncFrom, syncTail, syncEnd = 1, 2, 7, 8
	syncOpens                                = 13
	framePosition, framePrev                 = 1, 2
	frameAt, frameKind                       = 4, 5
	positionEpoch, positionSeq, positionHash = 1, 2, 3
	errorMessage                             = 2
)

// errLeads says that the tail of a Sync does not lead to its end.
var errLeads = errors.New("the batches of a Sync do not lead to its position")

// decodeView reads a ServerMessage. It checks that the tail of a Sync leads from its beginning to its end.
func decodeView(body []byte) (v view, err error) {
	err = fields(body, func(n protowire.Number, _ uint64, b []byte) error {
		switch n {
		case serverSync:
			v.sync = true
			return v.decodeSync(b)
		case serverFrame:
			return v.decodeFrame(b)
		case serverError:
			return fields(b, func(n protowire.Number, _ uint64, text []byte) error {
				if n == errorMessage {
					v.refused = string(text)
				}
				return nil
			})
		}
		return nil
	})
	return v, err
}

func (v *view) decodeFrame(b []byte) error {
	return fields(b, func(n protowire.Number, x uint64, b []byte) (err error) {
		switch n {
		case framePosition:
			v.position, err = position(b)
		case framePrev:
			v.from, err = position(b)
		case frameAt:
			v.atMs = x
		case frameKind:
			v.kind = fence.Kind(x)
		}
		return err
	})
}

func (v *view) decodeSync(b []byte) error {
	var at fence.Position
	err := fields(b, func(n protowire.Number, x uint64, b []byte) (err error) {
		switch n {
		case syncReplace:
			v.replace = x != 0
		case syncOpens:
			v.opens = x != 0
		case syncFrom:
			v.from, err = position(b)
			at = v.from
		case syncTail:
			var f view
			if err = f.decodeFrame(b); err == nil && f.from == at {
				at = f.position
			}
		case syncEnd:
			v.position, err = position(b)
		}
		return err
	})
	if err == nil && at != v.position {
		err = errLeads
	}
	return err
}

func position(b []byte) (p fence.Position, err error) {
	err = fields(b, func(n protowire.Number, x uint64, _ []byte) error {
		switch n {
		case positionEpoch:
			p.Epoch = fence.Epoch(x)
		case positionSeq:
			p.Seq = fence.Seq(x)
		case positionHash:
			p.Chain = fence.Chain(x)
		}
		return nil
	})
	return p, err
}

// fields calls field for each field of a protobuf message, with its number or its bytes.
func fields(b []byte, field func(n protowire.Number, x uint64, bytes []byte) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var x uint64
		var bytes []byte
		switch kind {
		case protowire.VarintType:
			x, size = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			x, size = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			bytes, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := field(n, x, bytes); err != nil {
			return err
		}
	}
	return nil
}

// appendIntent writes an intent as the gateway reads it. An action is a card; without one it is a move, which the
// gateway need not begin when its player has given it up.
func appendIntent(dst []byte, id int, tile fence.TileID, action string, body []byte) []byte {
	dst = strconv.AppendInt(append(dst, `{"id":"`...), int64(id), 10)
	dst = append(append(dst, `","tile":"`...), tile.String()...)
	if action == "" {
		dst = append(dst, `","kind":"move","within":`...)
		dst = strconv.AppendInt(dst, orderTimeout.Milliseconds(), 10)
	} else {
		dst = append(append(append(dst, `","kind":"act","action":"`...), action...), '"')
	}
	dst = base64.StdEncoding.AppendEncode(append(dst, `,"body":"`...), body)
	return append(dst, `"}`...)
}
