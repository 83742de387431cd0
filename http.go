package tilefence

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/sampled"
)

// Bounds of the HTTP servers.
const (
	readHeaderTimeout = 5 * time.Second // a peer that does not finish its request's header is cut off
	bodyTimeout       = 5 * time.Second // and one that does not finish its body
	idleTimeout       = 2 * time.Minute // longer than clients keep a connection that is idle
	shutdownTimeout   = 2 * time.Second // for requests under way when a listener closes
)

// Web is how a server serves HTTP. The zero value is valid.
type Web struct {
	// Listener takes the connections. Run closes it. Default: Run listens at the server's address.
	Listener net.Listener

	// Handler wraps the server's own handler, to serve other paths beside it or to let requests through only
	// on conditions. Default: nothing else is served.
	Handler func(own http.Handler) http.Handler
}

// checkAddress refuses an address that a server cannot listen at: nil, or a *fence.ArgumentError. The host may be
// empty, and the port 0.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	_, bad := strconv.ParseUint(port, 10, 16)
	if err != nil || bad != nil || strings.ContainsAny(host, "/@ ") {
		return argument("addr", addr, "host:port, without a scheme, and with the number of a port")
	}
	return nil
}

// checkContact refuses a contact at which other processes could not call a tile server: nil, or a *fence.ArgumentError.
func checkContact(contact string) error {
	if err := route.ValidateAddress(contact); err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(contact)
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		return argument("contact", contact,
			"a host at which other processes reach this one; to listen elsewhere, set TileServerConfig.Web.Listener")
	}
	return nil
}

// listen opens the listener, unless there is one. ends is how it ends TLS; nil: it does not.
func (w *Web) listen(ctx context.Context, addr string, ends *tls.Config) (net.Listener, error) {
	l := w.Listener
	if l == nil {
		// Idle connections have a timeout, WebSockets have pings: the kernel's probes, which take four calls to set up,
		// would find nothing sooner.
		lc := net.ListenConfig{KeepAlive: -1}
		var err error
		if l, err = lc.Listen(ctx, "tcp", addr); err != nil {
			return nil, err
		}
	}
	if ends == nil {
		return l, nil
	}
	c := ends.Clone()
	c.NextProtos = []string{"http/1.1"} // HTTP/2 has no WebSockets
	return tls.NewListener(l, c), nil
}

// serve serves requests until ctx ends, then closes the listener and lets requests under way finish for
// shutdownTimeout. log takes what the server has to say of connections, sampled.
func (w *Web) serve(ctx context.Context, l net.Listener, own http.Handler, log *slog.Logger) error {
	if w.Handler != nil {
		own = w.Handler(own)
	}
	server := &http.Server{Handler: endSlowBodies(own), ReadHeaderTimeout: readHeaderTimeout, IdleTimeout: idleTimeout,
		ErrorLog: sampled.HTTP(log)}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(l) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
	defer cancel()
	late := server.Shutdown(bounded)
	if late != nil {
		_ = server.Close() // the requests left have had their time
	}
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return cmp.Or(err, late)
	}
	return nil
}

// endSlowBodies ends connections whose request's body does not come, whether the handler reads it or not. It is no
// http.Server.ReadTimeout, which would also end the context of a request that takes its time.
func endSlowBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			c := http.NewResponseController(w)
			if err := c.SetReadDeadline(time.Now().Add(bodyTimeout)); err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			r.Body = &timedBody{r.Body, c}
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a request's body, which has been read in time if it ends.
type timedBody struct {
	io.ReadCloser
	connection *http.ResponseController
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, io.EOF) {
		_ = b.connection.SetReadDeadline(time.Time{}) // the connection is gone then
	}
	return n, err
}
