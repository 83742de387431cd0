package socket

import (
	"encoding/binary"
	"fmt"
)

// WebSocket opcodes of RFC 6455.
const (
	opContinuation = 0x0
	OpText         = 0x1
	OpBinary       = 0x2
	OpClose        = 0x8
	OpPing         = 0x9
	OpPong         = 0xa
)

// The bits beside them in a frame's first two bytes.
const (
	bitFinal    = 0x80
	bitsReserve = 0x70
	bitDeflated = 0x40 // the message is compressed
	bitMasked   = 0x80
)

// Status codes for what cannot be read, or is too much.
const (
	CloseProtocol = 1002
	CloseBadData  = 1007
	ClosePolicy   = 1008
	CloseTooBig   = 1009
	CloseTryLater = 1013
)

// FrameError is a frame that must not be, and the status with which the connection is to be closed.
type FrameError struct {
	Status int
	Reason string
}

func (e *FrameError) Error() string { return fmt.Sprintf("%s (status %d)", e.Reason, e.Status) }

// MaxHeader is the longest header of an unmasked frame.
const MaxHeader = 10

// Seal makes a frame of a whole message, or control frame, by writing its header into the MaxHeader bytes kept free
// before the payload. A server's frames are not masked, so the result is the same for every client.
func Seal(buf []byte, op byte) []byte { return seal(buf, bitFinal|op) }

// Pack is Seal with the payload compressed, for a client that has agreed to it, and if that is worth it.
func Pack(buf []byte, op byte) []byte {
	if out, ok := deflate(make([]byte, MaxHeader, MaxHeader+len(buf)/2), buf[MaxHeader:]); ok {
		return seal(out, bitFinal|bitDeflated|op)
	}
	return Seal(buf, op)
}

func seal(buf []byte, first byte) []byte {
	n := len(buf) - MaxHeader
	switch {
	case n < 126:
		buf[8], buf[9] = first, byte(n)
		return buf[8:]
	case n < 1<<16:
		buf[6], buf[7] = first, 126
		binary.BigEndian.PutUint16(buf[8:], uint16(n))
		return buf[6:]
	}
	buf[0], buf[1] = first, 127
	binary.BigEndian.PutUint64(buf[2:], uint64(n))
	return buf
}

// Frame is a frame with a copy of the payload. That of a control frame has at most 125 bytes.
func Frame(op byte, payload []byte) []byte {
	return Seal(append(make([]byte, MaxHeader, MaxHeader+len(payload)), payload...), op)
}

// CloseFrame is a close frame with a status; of the reason go the first 123 bytes.
func CloseFrame(status int, reason string) []byte {
	payload := binary.BigEndian.AppendUint16(nil, uint16(status))
	return Frame(OpClose, append(payload, reason[:min(len(reason), 123)]...))
}

// CloseStatus is the status in the payload of a close frame; 1005 stands for one that has none.
func CloseStatus(payload []byte) int {
	if len(payload) < 2 {
		return 1005
	}
	return int(binary.BigEndian.Uint16(payload))
}
