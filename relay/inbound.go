package relay

import (
	"encoding/binary"
	"fmt"
	"io"
	"unicode/utf8"
)

// WebSocket opcodes of RFC 6455, and the bits beside them.
const (
	opContinuation = 0x0
	opText         = 0x1
	opBinary       = 0x2
	opClose        = 0x8
	opPing         = 0x9
	opPong         = 0xa

	bitFinal    = 0x80
	bitsReserve = 0x70
	bitMasked   = 0x80
)

// Status codes for what cannot be read.
const (
	closeProtocol = 1002
	closeBadData  = 1007
	closeTooBig   = 1009
)

// inbound takes what a client sends apart into messages. It is the relay's own because of what a connection costs that
// is silent: a goroutine whose stack stays small, and a few bytes of buffer.
type inbound struct {
	from  io.Reader
	limit int // bytes of one message
	// messages may be compressed: the handshake has agreed on permessage-deflate
	deflated bool
	buf      [128]byte
	rest     []byte // of buf, or of what came with the handshake: read and not used

	message []byte // of the message whose frames are coming
	op      byte   // its opcode; zero: none is coming
	packed  bool   // it is compressed
}

// frameError is a frame that must not be, and the status with which the connection is closed.
type frameError struct {
	status int
	reason string
}

func (e *frameError) Error() string { return fmt.Sprintf("%s (status %d)", e.reason, e.status) }

// next returns the next message, text or binary, or control frame. A *frameError says what the peer did wrong; after
// it, or another error, nothing can be read.
func (in *inbound) next() (op byte, payload []byte, err error) {
	for {
		first, payload, err := in.frame()
		op := first & 0xf
		switch {
		case err != nil:
			return 0, nil, err
		case op >= opClose:
			return op, payload, nil
		case op != opContinuation:
			in.op, in.message, in.packed = op, payload, first&bitDeflated != 0
		default:
			in.message = append(in.message, payload...)
		}
		if first&bitFinal == 0 {
			continue
		}
		op, payload = in.op, in.message
		in.op, in.message = 0, nil
		if in.packed {
			if payload, err = inflate(payload, in.limit); err != nil {
				return 0, nil, err
			}
		}
		if op == opText && !utf8.Valid(payload) {
			return 0, nil, &frameError{closeBadData, "text that is not UTF-8"}
		}
		return op, payload, nil
	}
}

// frame reads one frame, of which it returns the first byte and the payload, unmasked.
func (in *inbound) frame() (first byte, payload []byte, err error) {
	var head [2]byte
	if err := in.fill(head[:]); err != nil {
		return 0, nil, err
	}
	n, err := in.length(head[1] &^ bitMasked)
	if err != nil {
		return 0, nil, err
	}
	if wrong := in.wrong(head, n); wrong != nil {
		return 0, nil, wrong
	}
	var mask [4]byte
	if err := in.fill(mask[:]); err != nil {
		return 0, nil, err
	}
	payload = make([]byte, n)
	if err := in.fill(payload); err != nil {
		return 0, nil, err
	}
	for i := range payload {
		payload[i] ^= mask[i%4]
	}
	return head[0], payload, nil
}

// wrong is what a frame must not be, judged by its head and the length of its payload; nil if it may come.
func (in *inbound) wrong(head [2]byte, n uint64) *frameError {
	op, reserved := head[0]&0xf, head[0]&bitsReserve
	if in.deflated && (op == opText || op == opBinary) {
		reserved &^= bitDeflated
	}
	switch {
	case reserved != 0:
		return &frameError{closeProtocol, "a reserved bit is set"}
	case head[1]&bitMasked == 0:
		return &frameError{closeProtocol, "a frame that is not masked"}
	case op > opBinary && op < opClose || op > opPong:
		return &frameError{closeProtocol, "an unknown opcode"}
	case op >= opClose && (head[0]&bitFinal == 0 || n > 125):
		return &frameError{closeProtocol, "a control frame in pieces, or too long"}
	case op < opClose && (op == opContinuation) != (in.op != 0):
		return &frameError{closeProtocol, "a continuation of nothing, or a message within another"}
	case op < opClose && n > uint64(in.limit-len(in.message)):
		return tooBig(in.limit)
	}
	return nil
}

func tooBig(limit int) *frameError {
	return &frameError{closeTooBig, fmt.Sprintf("a message of more than %d bytes", limit)}
}

// length is the length of a frame's payload, which the second byte of its head gives, or says how it follows.
func (in *inbound) length(n byte) (uint64, error) {
	var long [8]byte
	switch n {
	case 126:
		err := in.fill(long[6:])
		return binary.BigEndian.Uint64(long[:]), err
	case 127:
		err := in.fill(long[:])
		return binary.BigEndian.Uint64(long[:]), err
	}
	return uint64(n), nil
}

// fill reads all of p. The end of the connection between two frames is io.EOF.
func (in *inbound) fill(p []byte) error {
	for len(p) > 0 {
		if len(in.rest) == 0 {
			if len(p) >= len(in.buf) {
				_, err := io.ReadFull(in.from, p)
				return err
			}
			n, err := in.from.Read(in.buf[:])
			in.rest = in.buf[:n]
			if n == 0 && err != nil {
				return err
			}
		}
		n := copy(p, in.rest)
		p, in.rest = p[n:], in.rest[n:]
	}
	return nil
}

// closeCode is the status of a close frame; 1005 stands for one that has none.
func closeCode(payload []byte) int {
	if len(payload) < 2 {
		return 1005
	}
	return int(binary.BigEndian.Uint16(payload))
}

// closeFrame is a close frame of ours.
func closeFrame(status int, reason string) []byte {
	payload := binary.BigEndian.AppendUint16(nil, uint16(status))
	return control(finClose, append(payload, reason[:min(len(reason), 123)]...))
}
