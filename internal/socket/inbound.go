package socket

import (
	"encoding/binary"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
)

// inbound takes what a client sends apart into messages.
type inbound struct {
	from  io.Reader
	limit int // bytes of one message
	// messages may be compressed: the handshake has agreed on permessage-deflate
	deflated bool
	buf      [128]byte
	rest     []byte // of buf, or of what came with the handshake: read and not used
	failed   error  // that Conn.Await met

	others Budget // frames beside the messages

	message []byte // of the message whose frames are coming
	op      byte   // its opcode; zero: none is coming
	packed  bool   // it is compressed
}

// next returns the next message, text or binary, or control frame. A *FrameError says what the peer did wrong; after
// it, or another error, nothing can be read.
func (in *inbound) next() (op byte, payload []byte, err error) {
	for {
		first, payload, err := in.frame()
		op := first & 0xf
		if err == nil && (op >= OpClose || first&bitFinal == 0) {
			err = in.spend(time.Now())
		}
		switch {
		case err != nil:
			return 0, nil, err
		case op >= OpClose:
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
		if op == OpText && !utf8.Valid(payload) {
			return 0, nil, &FrameError{CloseBadData, "text that is not UTF-8"}
		}
		return op, payload, nil
	}
}

// maxFrames is how many frames that are no messages a peer may send in BudgetWindow: pings, pongs, and the pieces of
// messages but the last. Messages are for the user to count.
const maxFrames = 1000

// spend counts a frame that is no message, and refuses one too many: they cost nearly as much as messages do, and would
// cost a hostile peer nothing.
func (in *inbound) spend(now time.Time) error {
	if !in.others.Spend(now, 1, maxFrames) {
		return &FrameError{ClosePolicy, "too many control frames and fragments"}
	}
	return nil
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
func (in *inbound) wrong(head [2]byte, n uint64) *FrameError {
	op, reserved := head[0]&0xf, head[0]&bitsReserve
	if in.deflated && (op == OpText || op == OpBinary) {
		reserved &^= bitDeflated
	}
	switch {
	case reserved != 0:
		return &FrameError{CloseProtocol, "a reserved bit is set"}
	case head[1]&bitMasked == 0:
		return &FrameError{CloseProtocol, "a frame that is not masked"}
	case op > OpBinary && op < OpClose || op > OpPong:
		return &FrameError{CloseProtocol, "an unknown opcode"}
	case op >= OpClose && (head[0]&bitFinal == 0 || n > 125):
		return &FrameError{CloseProtocol, "a control frame in pieces, or too long"}
	case op < OpClose && (op == opContinuation) != (in.op != 0):
		return &FrameError{CloseProtocol, "a continuation of nothing, or a message within another"}
	case op < OpClose && n > uint64(in.limit-len(in.message)):
		return tooBig(in.limit)
	}
	return nil
}

func tooBig(limit int) *FrameError {
	return &FrameError{CloseTooBig, fmt.Sprintf("a message of more than %d bytes", limit)}
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
		if len(in.rest) == 0 && in.failed != nil {
			return in.failed
		}
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

// BudgetWindow is the time over which a Budget counts.
const BudgetWindow = 10 * time.Second

// Budget counts what a peer sends in windows of BudgetWindow, one after another. The zero value is ready. It is not
// safe for concurrent use.
type Budget struct {
	began time.Time // of the present window
	spent int
}

// Spend counts n more, and reports whether they are within most a window.
func (b *Budget) Spend(now time.Time, n, most int) bool {
	if now.Sub(b.began) >= BudgetWindow {
		b.began, b.spent = now, 0
	}
	b.spent += n
	return b.spent <= most
}
