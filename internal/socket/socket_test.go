package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestCompressionThatWasNotAgreed: a compressed frame breaks the protocol then, and so does one that is damaged.
func TestCompressionThatWasNotAgreed(t *testing.T) {
	t.Parallel()
	packed, ok := deflate(nil, bytes.Repeat([]byte("tile"), 1000))
	require.True(t, ok)
	sent := masked(finBinary|bitDeflated, packed)
	_, err := readAll(bytes.NewReader(sent), nil, 10_000)
	require.ErrorContains(t, err, "reserved bit")

	for _, c := range []struct {
		sent   []byte
		status int
	}{
		{sent, 0}, {masked(finBinary|bitDeflated, packed[3:]), CloseBadData},
		{masked(finPing|bitDeflated, nil), CloseProtocol},
		{append(masked(OpBinary|bitDeflated, packed), masked(bitFinal|bitDeflated, nil)...), CloseProtocol},
	} {
		in := inbound{from: bytes.NewReader(c.sent), limit: 10_000, deflated: true}
		_, got, err := in.next()
		if c.status == 0 {
			require.NoError(t, err)
			require.Len(t, got, 4000)
			continue
		}
		var wrong *FrameError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, c.status, wrong.Status)
	}
}

func TestSendPacksAndChunks(t *testing.T) {
	a, b := net.Pipe()
	var total atomic.Uint64
	w := newConn(a, nil, false, 0, &total)
	frames := [][]byte{[]byte("one"), bytes.Repeat([]byte("x"), 10_000), bytes.Repeat([]byte("y"), 200_000),
		[]byte("two"), []byte("three")}
	var want []byte
	for _, f := range frames {
		want = append(want, f...)
	}
	writes := make(chan int, 100)
	got := make(chan []byte)
	go func() {
		var all []byte
		buf := make([]byte, 1<<20)
		for len(all) < len(want) {
			n, err := b.Read(buf)
			if err != nil {
				break
			}
			writes <- n
			all = append(all, buf[:n]...)
		}
		got <- all
	}()
	require.NoError(t, w.Send(time.Second, frames...))
	require.Equal(t, want, <-got)
	require.Len(t, writes, 1+4+1, "small frames together, large ones in pieces")
	require.EqualValues(t, len(want), total.Load())

	require.Error(t, w.Send(10*time.Millisecond, frames...), "nobody reads any more")
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// TestSilenceIsNotByTheWallClock, which may be put ahead: all clients of a server would be cut off as silent at once.
func TestSilenceIsNotByTheWallClock(t *testing.T) {
	a, b := net.Pipe()
	c := newConn(a, nil, false, 100, nil)
	for range 2 {
		require.Contains(t, c.Heard().String(), " m=", "it has no monotonic reading")
		require.Less(t, time.Since(c.Heard()).Abs(), time.Minute)
		go func() { _, _ = b.Write(masked(finBinary, []byte("x"))) }()
		_, _, err := c.Next()
		require.NoError(t, err)
	}
}

// TestTheResponseLeavesWithTheFirstFrames, once, and without them when it is asked to.
func TestTheResponseLeavesWithTheFirstFrames(t *testing.T) {
	long := bytes.Repeat([]byte("x"), chunkBytes+1)
	for name, frames := range map[string][][]byte{
		"nothing": nil, "a frame": {[]byte("one")}, "frames": {[]byte("one"), []byte("two")}, "a long frame": {long},
	} {
		t.Run(name, func(t *testing.T) {
			got, handler := make(chan []byte), func(w http.ResponseWriter, r *http.Request) {
				c, err := Accept(w, r, Offer{Hold: true}, 100, nil, func() error { return nil })
				require.NoError(t, err)
				require.True(t, c.Held())
				if frames != nil {
					require.NoError(t, c.Send(time.Second, frames...))
				}
				require.Equal(t, frames == nil, c.Held())
				for range 2 {
					require.NoError(t, c.Greet(time.Second))
				}
				require.NoError(t, c.Close())
			}
			s := httptest.NewServer(http.HandlerFunc(handler))
			defer s.Close()
			conn, err := net.Dial("tcp", s.Listener.Addr().String())
			require.NoError(t, err)
			defer conn.Close()
			r, err := http.NewRequest(http.MethodGet, s.URL, http.NoBody)
			require.NoError(t, err)
			r.Header = headers()
			require.NoError(t, r.Write(conn))
			go func() {
				all, _ := io.ReadAll(conn)
				got <- all
			}()
			head, behind, _ := bytes.Cut(<-got, []byte("\r\n\r\n"))
			require.Contains(t, string(head), "HTTP/1.1 101 ")
			require.Equal(t, string(bytes.Join(frames, nil)), string(behind))
		})
	}
}

// TestTrySend: what the network does not take at once is left, and the rest of a frame that has gone out in part comes
// before anything else.
func TestTrySend(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	reader, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	t.Cleanup(func() { _ = reader.Close() })
	server, err := l.Accept()
	require.NoError(t, err)
	t.Cleanup(func() { _ = server.Close() })
	require.NoError(t, server.(*net.TCPConn).SetWriteBuffer(16<<10))
	var total atomic.Uint64
	w := newConn(server, nil, false, 0, &total)

	var want []byte
	frame := func(size int) []byte {
		f := bytes.Repeat([]byte{byte('a' + len(want)%26)}, size)
		want = append(want, f...)
		return f
	}
	left, done := w.TrySend(frame(100), frame(200))
	require.True(t, done)
	require.Empty(t, left)
	in := 0
	for done { // nobody reads
		left, done = w.TrySend(frame(5000), frame(5001))
		in++
	}
	require.Greater(t, in, 1)
	again, done := w.TrySend(frame(10))
	require.False(t, done)
	require.Len(t, again, 1, "nothing goes before what is left of a frame")

	got := make(chan []byte)
	go func() {
		all := make([]byte, len(want))
		_, _ = io.ReadFull(reader, all) // the comparison shows it
		got <- all
	}()
	require.NoError(t, w.Send(time.Second, append(left, again...)...))
	require.Equal(t, want, <-got)
	require.EqualValues(t, len(want), total.Load())

	tooLarge := make([]byte, packBytes+1)
	left, done = w.TrySend(tooLarge)
	require.False(t, done)
	require.Len(t, left, 1)
	require.NoError(t, server.Close())
	left, done = w.TrySend([]byte("x"))
	require.False(t, done)
	require.Error(t, w.Send(time.Second, left...), "Send meets what was wrong")
}

// TestAwait: it returns when there is something to read, which may be the end or an error, and takes nothing from Next.
func TestAwait(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		send  func(client *net.TCPConn, server *Conn) error
		fails error
	}{
		"a message": {send: func(client *net.TCPConn, _ *Conn) error {
			_, err := client.Write(masked(finBinary, []byte("x")))
			return err
		}},
		"the end": {func(client *net.TCPConn, _ *Conn) error { return client.Close() }, io.EOF},
		"a reset": {func(client *net.TCPConn, _ *Conn) error {
			return errors.Join(client.SetLinger(0), client.Close())
		}, syscall.ECONNRESET},
		"too late": {func(_ *net.TCPConn, server *Conn) error {
			return server.SetReadDeadline(time.Now())
		}, os.ErrDeadlineExceeded},
		"closed": {func(_ *net.TCPConn, server *Conn) error { return server.Close() }, net.ErrClosed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			defer l.Close()
			client, err := net.Dial("tcp", l.Addr().String())
			require.NoError(t, err)
			defer client.Close()
			accepted, err := l.Accept()
			require.NoError(t, err)
			defer accepted.Close()
			server := newConn(accepted, nil, false, 100, nil)
			ready := make(chan struct{})
			go func() {
				server.Await()
				close(ready)
			}()
			select {
			case <-ready:
				require.Fail(t, "there is nothing yet")
			case <-time.After(20 * time.Millisecond):
			}
			require.NoError(t, c.send(client.(*net.TCPConn), server))
			select {
			case <-ready:
			case <-time.After(10 * time.Second):
				require.Fail(t, "it waits still")
			}
			_, payload, err := server.Next()
			if c.fails != nil {
				require.ErrorIs(t, err, c.fails)
				return
			}
			require.NoError(t, err)
			require.Equal(t, "x", string(payload))
		})
	}
}
