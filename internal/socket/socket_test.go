package socket

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
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
				require.NoError(t, c.Send(time.Second, frames...))
				require.Equal(t, len(frames) == 0, c.Held())
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
