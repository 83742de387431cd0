package front

import (
	"context"
	"errors"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/socket"
)

// BenchmarkHandshake is 64 clients a processor that connect, make the handshake and leave, again and again: at package
// http, and with handshakes taken in front of it.
func BenchmarkHandshake(b *testing.B) {
	for _, name := range []string{"http", "front"} {
		b.Run(name, func(b *testing.B) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(b, err)
			server := &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(
				func(w http.ResponseWriter, r *http.Request) {
					c, err := socket.Accept(w, r, socket.Offer{}, 100, nil, func() error { return nil })
					if err == nil {
						_, _, _ = c.Next()
						_ = c.Close()
					}
				})}
			f := New(l, server)
			serving := net.Listener(f)
			if name == "http" {
				serving = l
			}
			ended := make(chan error, 1)
			go func() { ended <- server.Serve(serving) }()
			b.SetParallelism(64)
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				for heard := make([]byte, 1024); p.Next(); {
					c, err := net.Dial("tcp", l.Addr().String())
					if err != nil {
						b.Error(err)
						return
					}
					_, err = c.Write([]byte(first + host + hand + end))
					_, err2 := c.Read(heard)
					_ = c.(*net.TCPConn).SetLinger(0) // no port stays in use
					if err := errors.Join(err, err2, c.Close()); err != nil {
						b.Error(err)
					}
				}
			})
			require.NoError(b, server.Close())
			require.NoError(b, f.Wait(context.Background()))
			<-ended
		})
	}
}
