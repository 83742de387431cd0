//go:build linux

package crowd

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"golang.org/x/sys/unix"
)

// Join is one client of a Storm.
type Join struct {
	Addr    string        // host:port of the server, an IPv4 address
	Message []byte        // that it sends when the handshake is made, less than 64 KiB
	Took    time.Duration // from the moment at which it is due to connect, to the end of the server's first message

	due    time.Duration // since the storm began
	to     unix.SockaddrInet4
	say    [][]byte // what it has not said yet: the handshake, the message
	socket Socket
}

// Storm has clients join, each at a random moment of a time: it connects, makes the handshake for the path "/", sends
// its message, and waits for the first that the server sends, with which take is called. One loop serves all of them,
// with sockets and bytes that are there before it begins, because it shares the processors with the servers. leave
// resets the connections, so that nothing of them lingers in the kernel.
func Storm(
	joins []Join, over time.Duration, subprotocol string, take func(i int, body []byte),
) (leave func(), err error) {
	s := storm{joins: joins, take: take, buffer: make([]byte, 256<<10), byFD: map[int32]int{}}
	defer func() {
		if err != nil {
			s.leave()
		}
	}()
	if s.poll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(s.poll) }()
	for i := range joins {
		if err := s.prepare(i, over, subprotocol); err != nil {
			return nil, s.wrong(i, err)
		}
	}
	return s.leave, s.run()
}

// storm is what the loop knows.
type storm struct {
	joins  []Join
	take   func(i int, body []byte)
	poll   int
	byFD   map[int32]int
	buffer []byte
	began  time.Time
	left   int // clients that have not joined
}

func (s *storm) wrong(i int, err error) error {
	return fmt.Errorf("client %d of %d: %w", i+1, len(s.joins), err)
}

// leave closes the connections.
func (s *storm) leave() {
	for fd := range s.byFD {
		_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		_ = unix.Close(int(fd))
	}
}

// prepare makes what is there before the storm.
func (s *storm) prepare(i int, over time.Duration, subprotocol string) error {
	j := &s.joins[i]
	to, err := net.ResolveTCPAddr("tcp4", j.Addr)
	if err != nil {
		return err
	}
	j.to = unix.SockaddrInet4{Port: to.Port, Addr: [4]byte(to.IP.To4())}
	frame, err := appendFrame(nil, opBinary, j.Message)
	if err != nil {
		return err
	}
	j.say, j.due = [][]byte{request(j.Addr, "/", subprotocol), frame}, rand.N(over)
	j.socket.FD, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		s.byFD[int32(j.socket.FD)] = i
	}
	return err
}

// run serves the clients until all have joined.
func (s *storm) run() error {
	order := make([]int, len(s.joins))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(s.joins[a].due - s.joins[b].due) })
	events := make([]unix.EpollEvent, 256)
	s.began = time.Now()
	for s.left = len(order); s.left > 0; {
		wait := -1
		for ; len(order) > 0; order = order[1:] {
			if early := s.joins[order[0]].due - time.Since(s.began); early > 0 {
				wait = int(early/time.Millisecond) + 1
				break
			}
			if err := s.connect(&s.joins[order[0]]); err != nil {
				return s.wrong(order[0], err)
			}
		}
		n, err := unix.EpollWait(s.poll, events, wait)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return err
		}
		for _, e := range events[:max(n, 0)] {
			i := s.byFD[e.Fd]
			if err := s.serve(i); err != nil {
				return s.wrong(i, err)
			}
		}
	}
	return nil
}

// connect begins a join. On one machine the connection is there at once, unless the server's backlog is full.
func (s *storm) connect(j *Join) error {
	err := unix.Connect(j.socket.FD, &j.to)
	if errors.Is(err, unix.EINPROGRESS) {
		return s.watch(unix.EPOLL_CTL_ADD, j, unix.EPOLLOUT)
	}
	if err == nil {
		err = j.speak()
	}
	if err != nil {
		return err
	}
	return s.watch(unix.EPOLL_CTL_ADD, j, unix.EPOLLIN)
}

func (s *storm) watch(op int, j *Join, events uint32) error {
	return unix.EpollCtl(s.poll, op, j.socket.FD, &unix.EpollEvent{Events: events, Fd: int32(j.socket.FD)})
}

// speak says what is next.
func (j *Join) speak() error {
	n, err := unix.Write(j.socket.FD, j.say[0])
	if err == nil && n < len(j.say[0]) {
		err = errors.New("the kernel does not take a short message")
	}
	j.say = j.say[1:]
	return err
}

// serve goes on with a client that can.
func (s *storm) serve(i int) error {
	j := &s.joins[i]
	switch len(j.say) {
	case 2: // it waited for the connection
		if err := j.speak(); err != nil {
			return err
		}
		return s.watch(unix.EPOLL_CTL_MOD, j, unix.EPOLLIN)
	case 1:
		return s.shake(j)
	}
	return j.socket.Read(s.buffer, func(body []byte) error {
		if j.Took > 0 {
			return nil // it came right behind the first
		}
		j.Took = time.Since(s.began) - j.due
		s.left--
		s.take(i, body)
		return s.watch(unix.EPOLL_CTL_DEL, j, 0) // what else comes stays in the kernel
	})
}

// shake reads the server's half of the handshake.
func (s *storm) shake(j *Join) error {
	n, err := unix.Read(j.socket.FD, s.buffer)
	switch {
	case err != nil:
		return err
	case n == 0:
		return ErrClosed
	}
	j.socket.rest = append(j.socket.rest, s.buffer[:n]...)
	head, behind, whole := bytes.Cut(j.socket.rest, []byte("\r\n\r\n"))
	if !whole {
		return nil
	}
	if status, _, _ := bytes.Cut(head, []byte("\r\n")); !bytes.HasPrefix(status, []byte("HTTP/1.1 101 ")) {
		return fmt.Errorf("%s answered %q, expected a switch to WebSocket", j.Addr, status)
	}
	j.socket.rest = behind
	return j.speak()
}
