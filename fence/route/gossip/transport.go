package gossip

import (
	"context"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

// transport is memberlist's own, except that its connections end with the node: memberlist would wait for a
// peer that does not answer.
type transport struct {
	*memberlist.NetTransport
	life context.Context
}

func listen(life context.Context, bind netip.AddrPort, logger *log.Logger) (*transport, error) {
	cfg := &memberlist.NetTransportConfig{BindAddrs: []string{bind.Addr().String()}, BindPort: int(bind.Port()),
		Logger: logger}
	t, err := memberlist.NewNetTransport(cfg)
	// A port that is free for TCP may be taken for UDP; the system picks another one.
	for range 10 {
		if err == nil || bind.Port() != 0 || !strings.Contains(err.Error(), "address already in use") {
			break
		}
		t, err = memberlist.NewNetTransport(cfg)
	}
	if err != nil {
		return nil, err
	}
	return &transport{NetTransport: t, life: life}, nil
}

// DialTimeout implements memberlist.Transport.
func (t *transport) DialTimeout(addr string, timeout time.Duration) (net.Conn, error) {
	return t.DialAddressTimeout(memberlist.Address{Addr: addr}, timeout)
}

// DialAddressTimeout implements memberlist.NodeAwareTransport.
func (t *transport) DialAddressTimeout(a memberlist.Address, timeout time.Duration) (net.Conn, error) {
	d := net.Dialer{Timeout: timeout}
	c, err := d.DialContext(t.life, "tcp", a.Addr)
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c, forget: context.AfterFunc(t.life, func() { _ = c.Close() })}, nil
}

type conn struct {
	net.Conn
	forget func() bool
}

func (c *conn) Close() error {
	c.forget()
	return c.Conn.Close()
}

// logLines makes a *log.Logger for memberlist whose lines go to l at debug level: memberlist logs ordinary
// network failures as errors.
func logLines(l *slog.Logger) *log.Logger { return log.New(lines{l}, "", 0) }

type lines struct{ logger *slog.Logger }

func (l lines) Write(b []byte) (int, error) {
	if l.logger.Enabled(context.Background(), slog.LevelDebug) {
		text := strings.TrimSpace(string(b))
		level := "info"
		if rest, ok := strings.CutPrefix(text, "["); ok {
			if name, after, ok := strings.Cut(rest, "] "); ok {
				level, text = strings.ToLower(name), strings.TrimPrefix(after, "memberlist: ")
			}
		}
		l.logger.Debug("memberlist", "message", text, "level", level)
	}
	return len(b), nil
}
