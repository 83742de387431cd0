package stream

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tilefence/tilefence/fence"
)

// frameVersion is the first byte of every frame.
const frameVersion = 1

const flagRebase = 1

// Frame is one committed batch on its way to watchers: a stream entry with its tile. It is the message
// on a tile's fan-out channel.
//
// Encoded, in this order; "varint" is unsigned LEB128, the rest big-endian:
//
//	version      1 byte, 1
//	flags        1 byte; bit 0: rebase marker
//	tile         8 bytes
//	epoch        varint
//	seq          varint
//	chain        8 bytes
//	prev epoch   varint
//	prev seq     varint
//	prev chain   8 bytes
//	tick         varint
//	events       varint
//	committed    varint, milliseconds since 1970, store clock
//	payload      varint length, bytes
type Frame struct {
	Tile fence.TileID
	fence.Entry
}

// AppendFrame appends the encoded frame to dst. The frame comes from a stream entry, whose bounds the
// store has checked, so it cannot fail.
func AppendFrame(dst []byte, f *Frame) []byte {
	var flags byte
	if f.Rebase {
		flags |= flagRebase
	}
	dst = append(dst, frameVersion, flags)
	dst = binary.BigEndian.AppendUint64(dst, uint64(f.Tile))
	dst = appendPosition(dst, f.Position)
	dst = appendPosition(dst, f.Prev)
	dst = binary.AppendUvarint(dst, uint64(f.Tick))
	dst = binary.AppendUvarint(dst, uint64(f.Events))
	dst = binary.AppendUvarint(dst, uint64(f.Committed))
	dst = binary.AppendUvarint(dst, uint64(len(f.Payload)))
	return append(dst, f.Payload...)
}

// DecodeFrame reads an encoded frame; its payload aliases p. A *FormatError says what is wrong. It does
// not verify the chain: see fence.Entry.Verify.
func DecodeFrame(p []byte) (*Frame, error) {
	d := decoder{p: p}
	if v := d.byte(); v != frameVersion && d.err == nil {
		return nil, &FormatError{What: "frame", Detail: fmt.Sprintf("version %d, this reader knows %d", v, frameVersion)}
	}
	flags := d.byte()
	if flags > flagRebase {
		d.fail(fmt.Sprintf("unknown flags %#x", flags))
	}
	f := &Frame{Tile: fence.TileID(d.fixed())}
	f.Position = d.position()
	f.Prev = d.position()
	f.Tick = fence.Tick(d.number(fence.MaxNumber))
	f.Events = int(d.number(fence.MaxEvents))
	f.Committed = int64(d.number(math.MaxInt64))
	f.Payload = d.bytes(fence.MaxPayload)
	f.Rebase = flags == flagRebase
	switch {
	case d.err != nil:
	case len(d.p) > 0:
		d.fail(fmt.Sprintf("%d bytes after the end", len(d.p)))
	case f.Tile == 0 || f.Epoch == 0 || f.Seq == 0:
		d.fail("tile, epoch and sequence must not be zero")
	}
	if d.err != nil {
		return nil, &FormatError{What: "frame", Detail: d.err.Error()}
	}
	return f, nil
}

func appendPosition(dst []byte, p fence.Position) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.Epoch))
	dst = binary.AppendUvarint(dst, uint64(p.Seq))
	return binary.BigEndian.AppendUint64(dst, uint64(p.Chain))
}

func (d *decoder) position() fence.Position {
	return fence.Position{
		Epoch: fence.Epoch(d.number(fence.MaxNumber)),
		Seq:   fence.Seq(d.number(fence.MaxNumber)),
		Chain: fence.Chain(d.fixed()),
	}
}

func (d *decoder) fixed() uint64 {
	if len(d.p) < 8 {
		d.fail("cut short")
		return 0
	}
	v := binary.BigEndian.Uint64(d.p)
	d.p = d.p[8:]
	return v
}
