package front

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/internal/socket"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// served is a server with handshakes in front.
type served struct {
	*Listener
	server *http.Server
	log    *lockedBuffer
	passed atomic.Int64 // connections that the server itself had
	ended  chan error
}

// lockedBuffer is written by a server and read by a test.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// serve serves a handler until the test ends; plain: without anything in front.
func serve(t *testing.T, handler http.HandlerFunc, plain bool, adjust ...func(*http.Server)) *served {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &served{log: &lockedBuffer{}, ended: make(chan error, 1)}
	s.server = &http.Server{Handler: handler, ReadHeaderTimeout: 300 * time.Millisecond,
		ErrorLog: log.New(s.log, "", 0), ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				s.passed.Add(1)
			}
		}}
	for _, f := range adjust {
		f(s.server)
	}
	s.Listener = New(l, s.server)
	if !plain {
		l = s.Listener
	}
	go func() { s.ended <- s.server.Serve(l) }()
	t.Cleanup(func() {
		require.NoError(t, s.server.Close())
		require.NoError(t, s.Wait(context.Background()))
		require.ErrorIs(t, <-s.ended, http.ErrServerClosed)
	})
	return s
}

// say sends bytes, in pieces with a pause between, and returns what is answered until the connection ends.
func (s *served) say(t *testing.T, pieces ...string) string {
	t.Helper()
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(10*time.Second)))
	for i, piece := range pieces {
		if i > 0 {
			time.Sleep(20 * time.Millisecond)
		}
		_, _ = io.WriteString(c, piece)
	}
	_ = c.(*net.TCPConn).CloseWrite() // it may be gone already, of a server that has not read all
	answer, err := io.ReadAll(c)
	if !errors.Is(err, syscall.ECONNRESET) {
		require.NoError(t, err)
	}
	return string(answer)
}

const (
	first = "GET /path?a=b HTTP/1.1\r\n"
	host  = "Host: play.test\r\n"
	hand  = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n" +
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	end = "\r\n"
)

// described answers what it sees of a request, refuses on request, and otherwise takes over and echoes what comes.
func described(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Seen", fmt.Sprintf("%s %s %s %s %d %t", r.Method, r.RequestURI, r.Host, r.Proto, r.ContentLength,
		r.Context().Value(http.ServerContextKey) != nil && r.Context().Value(http.LocalAddrContextKey) != nil))
	switch {
	case r.Header.Get("Upgrade") == "" || r.Header.Get("X-Refuse") != "":
		w.Header().Set("Retry-After", "1")
		http.Error(w, "not here", http.StatusTooManyRequests)
	case r.Header.Get("X-Silent") != "":
	default:
		c, both, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer c.Close()
		_, _ = both.WriteString("HTTP/1.1 101 Switching Protocols\r\nX-Seen: " + w.Header().Get("X-Seen") +
			"\r\n\r\n")
		_, _ = io.Copy(both, both)
		_ = both.Flush()
	}
}

// TestTheSameAnswers: a client cannot tell whether its handshake was met in front, and whatever is not quite a
// handshake is answered by package http itself.
func TestTheSameAnswers(t *testing.T) {
	t.Parallel()
	// However slow the machine, a head must not come too late, nor an answer be lost with a reset, which follows if
	// much of what was sent has not been read.
	patient := func(s *http.Server) { s.ReadHeaderTimeout, s.MaxHeaderBytes = 10*time.Second, 16<<10 }
	bare, fronted := serve(t, described, true, patient), serve(t, described, false, patient)
	met := []string{"handshake", "with bytes behind", "bytes behind later", "in pieces", "refused",
		"answered with nothing", "lower case", "header of 4 KiB"}
	for name, pieces := range map[string][]string{
		"handshake":             {first + host + hand + end},
		"with bytes behind":     {first + host + hand + end + "behind"},
		"bytes behind later":    {first + host + hand + end, "be", "hind"},
		"in pieces":             {first[:9], first[9:] + host, hand, end},
		"refused":               {first + host + hand + "X-Refuse: 1\r\n" + end},
		"answered with nothing": {first + host + hand + "X-Silent: 1\r\n" + end},
		"no upgrade":            {first + host + "Connection: close\r\n" + end},
		"another upgrade":       {first + host + "Connection: Upgrade\r\nUpgrade: h2c\r\nX-Refuse: 1\r\n" + end},
		"lower case":            {first + strings.ToLower(host+hand) + end},
		"long header":           {first + host + hand + "X-Long: " + strings.Repeat("x", headBytes) + "\r\n" + end},
		"header of 4 KiB": {first + host + hand + "X-Long: " + strings.Repeat("x",
			headBytes-len(first+host+hand+"X-Long: \r\n\r\n")) + "\r\n" + end},
		"header that is too long": {first + host + hand + "X-Long: " + strings.Repeat("x", 24<<10) + "\r\n" + end},
		"without a host":          {first + hand + end},
		"a host behind the end":   {strings.ReplaceAll(first+hand+end, "\r\n", "\n") + host + end},
		"two hosts":               {first + host + host + hand + end},
		"a host that is none":     {first + "Host: a b\r\n" + hand + end},
		"a value that is none":    {first + host + hand + "X-Bad: a\x01b\r\n" + end},
		"a name that is none":     {first + host + hand + "X Bad: ab\r\n" + end},
		"no header at all":        {first + host + hand + "nonsense\r\n" + end},
		"with a body":             {first + host + hand + "Content-Length: 4\r\n" + end + "body"},
		"with an empty body":      {first + host + hand + "Content-Length: 0\r\n" + end},
		"in chunks":               {first + host + hand + "Transfer-Encoding: chunked\r\n" + end + "0\r\n\r\n"},
		"with an expectation":     {first + host + hand + "Expect: 100-continue\r\n" + end},
		"another expectation":     {first + host + hand + "Expect: miracles\r\n" + end},
		"version 1.0":             {strings.Replace(first, "1.1", "1.0", 1) + host + hand + end},
		"version 2.0":             {strings.Replace(first, "1.1", "2.0", 1) + host + hand + end},
		"another method":          {strings.Replace(first, "GET", "POST", 1) + host + hand + end},
		"a whole URL":             {strings.Replace(first, "/path", "http://play.test/path", 1) + host + hand + end},
		"only lines":              {strings.ReplaceAll(first+host+hand+end, "\r\n", "\n")},
		"nonsense":                {"nonsense\r\n\r\n"},
		"half a head":             {first + host},
		"two requests": {first + host + "X-Refuse: 1\r\n" + end +
			first + host + "Connection: close\r\n" + end},
	} {
		before := fronted.passed.Load()
		want, got := answer(bare.say(t, pieces...)), answer(fronted.say(t, pieces...))
		assert.Equal(t, want, got, name)
		assert.Equal(t, !slices.Contains(met, name), fronted.passed.Load() > before, name)
	}
	assert.Empty(t, fronted.say(t), "no request came")
}

// answer is what a server said, without the time and whether it goes on with the connection.
func answer(all string) string {
	var kept []string
	for line := range strings.Lines(all) {
		if !strings.HasPrefix(line, "Date: ") && !strings.HasPrefix(line, "Connection: close") {
			kept = append(kept, line)
		}
	}
	slices.Sort(kept) // the order of headers means nothing
	return strings.Join(kept, "")
}

// TestSocketsAreTakenOver: package socket has the connection and what is behind the handshake, through wrappers, and
// with it nothing of the server's is left on it.
func TestSocketsAreTakenOver(t *testing.T) {
	t.Parallel()
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := socket.Accept(wrapper{w}, r, socket.Offer{}, 100, nil, func() error { return nil })
		if !assert.NoError(t, err) {
			return
		}
		_, err = w.Write(nil)
		assert.ErrorIs(t, err, http.ErrHijacked)
		control := http.NewResponseController(w)
		_, _, err = control.Hijack()
		assert.ErrorIs(t, err, http.ErrHijacked)
		assert.ErrorIs(t, control.SetReadDeadline(time.Now()), http.ErrHijacked)
		assert.ErrorIs(t, control.SetWriteDeadline(time.Now()), http.ErrHijacked)
		go func() {
			defer c.Close()
			_, heard, err := c.Next()
			assert.NoError(t, err)
			assert.NoError(t, c.Send(time.Second, socket.Frame(socket.OpText, heard)))
			time.Sleep(2 * s300) // longer than the server's timeout for the head
			_, heard, err = c.Next()
			assert.NoError(t, err)
			assert.NoError(t, c.Send(time.Second, socket.Frame(socket.OpText, heard)))
		}()
	}, false)
	c, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	hello := []byte{0x81, 0x82, 0, 0, 0, 0, 'h', 'i'} // a frame of a client, masked by zeros
	_, err = c.Write(append([]byte(first+host+hand+end), hello...))
	require.NoError(t, err)
	from := bufio.NewReader(c)
	r, err := http.ReadResponse(from, nil)
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, r.StatusCode)
	for range 2 {
		frame := make([]byte, 4)
		_, err = io.ReadFull(from, frame)
		require.NoError(t, err)
		require.Equal(t, "\x81\x02hi", string(frame))
		_, err = c.Write(hello)
		require.NoError(t, err)
	}
}

const s300 = 300 * time.Millisecond

type wrapper struct{ http.ResponseWriter }

func (w wrapper) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// TestOthersUpgrade: a library for WebSockets and a proxy find what they expect of a server.
func TestOthersUpgrade(t *testing.T) {
	t.Parallel()
	echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{"p"}})
		if !assert.NoError(t, err) {
			return
		}
		defer c.CloseNow()
		kind, heard, err := c.Read(r.Context())
		assert.NoError(t, err)
		assert.NoError(t, c.Write(r.Context(), kind, heard))
		_ = c.Close(websocket.StatusNormalClosure, "")
	}, false)
	to, err := url.Parse("http://" + echo.Addr().String())
	require.NoError(t, err)
	proxy := serve(t, httputil.NewSingleHostReverseProxy(to).ServeHTTP, false)
	for _, s := range []*served{echo, proxy} {
		c, _, err := websocket.Dial(t.Context(), "ws://"+s.Addr().String()+"/", &websocket.DialOptions{
			Subprotocols: []string{"p"}})
		require.NoError(t, err)
		require.Equal(t, "p", c.Subprotocol())
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte("hi")))
		_, heard, err := c.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, "hi", string(heard))
		_, _, err = c.Read(t.Context())
		require.Equal(t, websocket.StatusNormalClosure, websocket.CloseStatus(err))
		_ = c.CloseNow()
	}
}

// TestSlowHeads: a peer that does not finish its handshake is cut off after the server's timeout.
func TestSlowHeads(t *testing.T) {
	t.Parallel()
	s := serve(t, described, false)
	for _, head := range []string{"", first + host} {
		c, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(c, head)
		require.NoError(t, err)
		require.NoError(t, c.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = io.ReadAll(c)
		require.NoError(t, err, "the server closes it")
		_ = c.Close()
	}
}

// TestPanics: a handler's panic ends its connection, is logged as package http does, and nothing else.
func TestPanics(t *testing.T) {
	t.Parallel()
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-Refuse") != "" {
			panic(http.ErrAbortHandler)
		}
		panic("the handler's")
	}, false)
	require.Empty(t, s.say(t, first+host+hand+"X-Refuse: 1\r\n"+end))
	require.Empty(t, s.log.String())
	require.Empty(t, s.say(t, first+host+hand+end))
	require.Contains(t, s.log.String(), "http: panic serving 127.0.0.1:")
	require.Contains(t, s.log.String(), "the handler's\ngoroutine ")
}

// TestShutdown: what has not begun ends at once, and a handler has as long as it is given.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, patient := range []bool{true, false} {
		begun, leave := make(chan struct{}), make(chan struct{})
		s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
			close(begun)
			<-leave
			http.Error(w, "late", http.StatusServiceUnavailable)
		}, false)
		silent, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		asks, err := net.Dial("tcp", s.Addr().String())
		require.NoError(t, err)
		_, err = io.WriteString(asks, first+host+hand+end)
		require.NoError(t, err)
		<-begun
		require.NoError(t, s.server.Shutdown(t.Context()))
		require.NoError(t, silent.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, err = io.ReadAll(silent)
		require.NoError(t, err, "it is closed")
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if patient {
			time.AfterFunc(50*time.Millisecond, func() { close(leave) })
		} else {
			time.AfterFunc(50*time.Millisecond, cancel)
			time.AfterFunc(100*time.Millisecond, func() { close(leave) })
		}
		err = s.Wait(ctx)
		answered, _ := io.ReadAll(asks)
		if patient {
			require.NoError(t, err)
			require.Contains(t, string(answered), "late")
		} else {
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, answered)
		}
		cancel()
		_ = silent.Close()
		_ = asks.Close()
		_, err = s.Accept()
		require.ErrorIs(t, err, net.ErrClosed)
	}
}

// TestEncrypted: a connection that is encrypted is the server's.
func TestEncrypted(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = fmt.Fprint(w, r.TLS != nil)
	}))
	s.StartTLS() // for its certificate
	defer s.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: s.Config.Handler}
	encrypted := New(tls.NewListener(l, s.TLS), server)
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(encrypted) }()
	client := s.Client()
	r, err := client.Get("https://" + l.Addr().String())
	require.NoError(t, err)
	body, err := io.ReadAll(r.Body)
	require.NoError(t, err)
	require.Equal(t, "true", string(body))
	_ = r.Body.Close()
	client.CloseIdleConnections()
	require.NoError(t, server.Close())
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}

// failing is a listener whose first calls fail in a way that may pass.
type failing struct {
	net.Listener
	left int
}

func (l *failing) Accept() (net.Conn, error) {
	if l.left--; l.left >= 0 {
		return nil, passing{errors.New("no descriptor is left")}
	}
	return l.Listener.Accept()
}

type passing struct{ error }

func (passing) Timeout() bool   { return true }
func (passing) Temporary() bool { return true }

// TestFailuresPass: an error of the listener reaches the server, which waits and goes on.
func TestFailuresPass(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	said := &lockedBuffer{}
	server := &http.Server{Handler: http.HandlerFunc(described), ErrorLog: log.New(said, "", 0)}
	s := &served{Listener: New(&failing{l, 3}, server)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.Listener) }()
	require.Contains(t, s.say(t, first+host+hand+end), "101 Switching")
	waittest.Until(t, func() bool { return strings.Count(said.String(), "no descriptor is left") == 3 },
		10*time.Second, time.Millisecond) // the server may still be about to say it
	require.NoError(t, server.Close())
	require.NoError(t, s.Wait(t.Context()))
	require.ErrorIs(t, <-ended, http.ErrServerClosed)
}

// TestWaitEndsWithItsContext: also when a handler waits for its request's, which ends then.
func TestWaitEndsWithItsContext(t *testing.T) {
	entered := make(chan struct{})
	free := make(chan struct{})
	s := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(entered)
		select {
		case <-r.Context().Done():
		case <-free:
		}
	}, false)
	conn, err := net.Dial("tcp", s.Addr().String())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.Write([]byte(first + host + hand + end))
	require.NoError(t, err)
	<-entered
	require.NoError(t, s.server.Shutdown(context.Background()))
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Wait(ctx) }()
	select {
	case err := <-done:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(time.Minute):
		t.Error("Wait goes on after its context")
	}
	close(free)
}
