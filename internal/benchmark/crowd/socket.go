//go:build linux

package crowd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Socket is one WebSocket for a loop that serves thousands: it never waits. Create one with Client.Detach.
type Socket struct {
	FD   int    // non-blocking; the loop waits until it can be read
	rest []byte // the beginning of a message whose end has not come
	out  []byte // the last message sent
}

// ErrClosed says that the server has ended a connection.
var ErrClosed = errors.New("the server has closed the connection")

// Read reads what has come and calls take for each whole message, which may use it until it returns. Pings are
// answered. The loop may wait for edges: nothing is left unread.
func (s *Socket) Read(buffer []byte, take func(body []byte) error) error {
	for {
		n, err := unix.Read(s.FD, buffer)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return nil
		case err != nil:
			return err
		case n == 0:
			return ErrClosed
		}
		if err = s.took(buffer[:n], take); err != nil || n < len(buffer) {
			return err
		}
	}
}

// took splits what was read into messages.
func (s *Socket) took(data []byte, take func(body []byte) error) error {
	if len(s.rest) > 0 {
		data = append(s.rest, data...)
	}
	return s.split(data, take)
}

// split calls take for each whole message of a stream, and keeps what is left.
func (s *Socket) split(data []byte, take func(body []byte) error) error {
	for {
		op, body, after, err := message(data)
		if err != nil {
			return err
		}
		if after == nil {
			s.rest = append(s.rest[:0], data...)
			return nil
		}
		switch data = after; op {
		case opText, opBinary:
			err = take(body)
		case opPing:
			err = s.write(opPong, body)
		case opClose:
			err = closed(body)
		}
		if err != nil {
			return err
		}
	}
}

// closed is ErrClosed with what the server has said about it.
func closed(body []byte) error {
	if len(body) < 2 {
		return ErrClosed
	}
	return fmt.Errorf("%w: %d %s", ErrClosed, binary.BigEndian.Uint16(body), body[2:])
}

// message splits off the first message of a stream; after is nil if it has not come in whole.
func message(data []byte) (op byte, body, after []byte, err error) {
	if len(data) < 2 {
		return 0, nil, nil, nil
	}
	if data[0]&final == 0 || data[1]&masked != 0 {
		return 0, nil, nil, fmt.Errorf("a frame begins with % x, want an unmasked one that is a message", data[:2])
	}
	head, size := 2, uint64(data[1])
	if size > longest {
		if head = 4; size > twoBytes {
			head = headerMax
		}
		if len(data) < head {
			return 0, nil, nil, nil
		}
		if size == twoBytes {
			size = uint64(binary.BigEndian.Uint16(data[2:]))
		} else {
			size = binary.BigEndian.Uint64(data[2:])
		}
	}
	if uint64(len(data)-head) < size {
		return 0, nil, nil, nil
	}
	return data[0] & opMask, data[head : head+int(size)], data[head+int(size):], nil
}

// Send sends one message of less than 64 KiB, as text or binary. A message that the kernel does not take at once is an
// error: the server has not read for long.
func (s *Socket) Send(text bool, body []byte) error { return s.write(opOf(text), body) }

func (s *Socket) write(op byte, body []byte) error {
	frame, err := appendFrame(s.out[:0], op, body)
	if err != nil {
		return err
	}
	s.out = frame
	n, err := unix.Write(s.FD, s.out)
	if err == nil && n < len(s.out) {
		err = unix.EAGAIN
	}
	return err
}

// Detach makes the connection a loop's. What the server has sent already comes with what the loop reads first. The
// Client must not be used any more.
func (c *Client) Detach() (s Socket, err error) {
	early, err := c.in.Peek(c.in.Buffered())
	if err != nil {
		return s, err
	}
	s.rest = slices.Clone(early)
	raw, err := c.conn.(syscall.Conn).SyscallConn() // of a TCP connection
	if err != nil {
		return s, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { s.FD, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0) })
	if err = errors.Join(err, failed); err == nil {
		_ = c.conn.Close() // the descriptor is a copy
	}
	return s, err
}
