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
	Addr string        // host:port of the server, an IPv4 address
	Path string        // of the handshake's URL, with the query
	Took time.Duration // from when it is due to connect to the end of the first message that counts

	due       time.Duration // since the storm began
	to        unix.SockaddrInet4
	handshake []byte // nil: it was sent
	shaken    bool   // the server's half has come
	socket    Socket
}

// Storm has clients join, each at a random moment of a time: it connects, makes the handshake, and waits for the
// first message that the server sends and take accepts. One loop serves all of them, with sockets and
// bytes that are there before it begins, because it shares the processors with the servers. leave resets the
// connections, so that nothing of them lingers in the kernel.
//
// The process should have a processor more than the loop, by GOMAXPROCS: with one, the runtime takes it from the loop
// each time that the loop waits, and its monitor never comes to rest.
func Storm(
	joins []Join, over time.Duration, subprotocol string, take func(i int, body []byte) bool,
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
	for n := -1; n != 0; { // a socket without a connection has an event, too
		if n, err = unix.EpollWait(s.poll, s.events[:], 0); err != nil && !errors.Is(err, unix.EINTR) {
			return nil, err
		}
	}
	return s.leave, s.run()
}

// storm is what the loop knows.
type storm struct {
	joins  []Join
	take   func(i int, body []byte) bool
	poll   int
	events [256]unix.EpollEvent
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
	j.handshake, j.due = request(j.Addr, j.Path, subprotocol), rand.N(over)
	j.socket.FD, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	s.byFD[int32(j.socket.FD)] = i
	return s.watch(unix.EPOLL_CTL_ADD, j, unix.EPOLLIN)
}

// run serves the clients until all have joined.
func (s *storm) run() error {
	order := make([]int, len(s.joins))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return int(s.joins[a].due - s.joins[b].due) })
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
		ready, err := s.wait(wait)
		if err != nil {
			return err
		}
		for _, e := range ready {
			i := s.byFD[e.Fd]
			if err := s.serve(i); err != nil {
				return s.wrong(i, err)
			}
		}
	}
	return nil
}

// wait returns what has happened, after at most some milliseconds; -1: however long it takes.
func (s *storm) wait(ms int) ([]unix.EpollEvent, error) {
	n, err := unix.EpollWait(s.poll, s.events[:], ms)
	if errors.Is(err, unix.EINTR) {
		return nil, nil
	}
	return s.events[:max(n, 0)], err
}

// connect begins a join. On one machine the connection is there when the call returns, although the call says that it
// is not, unless the server's backlog is full.
func (s *storm) connect(j *Join) error {
	if err := unix.Connect(j.socket.FD, &j.to); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	err := j.speak()
	if errors.Is(err, unix.EAGAIN) {
		return s.watch(unix.EPOLL_CTL_MOD, j, unix.EPOLLIN|unix.EPOLLOUT)
	}
	return err
}

// watch asks for events of a client's socket, each of them once.
func (s *storm) watch(op int, j *Join, events uint32) error {
	return unix.EpollCtl(s.poll, op, j.socket.FD,
		&unix.EpollEvent{Events: events | unix.EPOLLET, Fd: int32(j.socket.FD)})
}

// speak sends the handshake.
func (j *Join) speak() error {
	n, err := unix.Write(j.socket.FD, j.handshake)
	if err != nil {
		return err
	}
	if n < len(j.handshake) {
		return errors.New("the kernel does not take a short message")
	}
	j.handshake = nil
	return nil
}

// serve goes on with a client that can.
func (s *storm) serve(i int) error {
	j := &s.joins[i]
	if j.handshake != nil { // it waited for the connection
		return j.speak()
	}
	take := func(body []byte) error { return s.joined(i, body) }
	if !j.shaken {
		behind, err := s.shake(j)
		if err != nil || len(behind) == 0 {
			return err
		}
		if err := j.socket.split(behind, take); err != nil {
			return err
		}
	}
	if j.Took > 0 {
		return nil
	}
	return j.socket.Read(s.buffer, take)
}

// joined offers a client's message, and is over with the first that is accepted. What else comes stays in the kernel.
func (s *storm) joined(i int, body []byte) error {
	j := &s.joins[i]
	if j.Took > 0 {
		return nil // it came right behind the first
	}
	took := time.Since(s.began) - j.due
	if !s.take(i, body) {
		return nil
	}
	j.Took = took
	s.left--
	return s.watch(unix.EPOLL_CTL_DEL, j, 0)
}

// shake reads the server's half of the handshake, and returns what came behind it.
func (s *storm) shake(j *Join) (behind []byte, err error) {
	n, err := unix.Read(j.socket.FD, s.buffer)
	switch {
	case err != nil:
		return nil, err
	case n == 0:
		return nil, ErrClosed
	}
	data := s.buffer[:n]
	if len(j.socket.rest) > 0 {
		data = append(j.socket.rest, data...)
	}
	head, behind, whole := bytes.Cut(data, []byte("\r\n\r\n"))
	if !whole {
		j.socket.rest = append(j.socket.rest[:0], data...)
		return nil, nil
	}
	if status, _, _ := bytes.Cut(head, []byte("\r\n")); !bytes.HasPrefix(status, []byte("HTTP/1.1 101 ")) {
		return nil, fmt.Errorf("%s answered %q, expected a switch to WebSocket", j.Addr, status)
	}
	j.shaken, j.socket.rest = true, nil
	return behind, nil
}
