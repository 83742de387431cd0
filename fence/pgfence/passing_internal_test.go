package pgfence

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

// TestWhatPassesAtTheStart: a process waits for a server that is away, and for no setting that is wrong.
func TestWhatPassesAtTheStart(t *testing.T) {
	code := func(c string) error { return &pgconn.PgError{Severity: "FATAL", Code: c} }
	for _, c := range []struct {
		what    string
		err     error
		passing bool
	}{
		{"refused", &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{"refused, bare", syscall.ECONNREFUSED, true},
		{"reset", syscall.ECONNRESET, true},
		{"unknown host", &net.DNSError{IsNotFound: true}, true},
		{"closed", io.EOF, true},
		{"closed within a reply", io.ErrUnexpectedEOF, true},
		{"deadline", context.DeadlineExceeded, true},
		{"connection exception", code("08006"), true},
		{"shutdown", code("57P01"), true},
		{"crash", code("57P02"), true},
		{"starting", code("57P03"), true},
		{"full", code("53300"), true},
		{"standby", code("25006"), true},
		{"standby, by target_session_attrs", pgconn.ErrReadOnlyConnection, true},
		{"standby, by that for the primary", pgconn.ErrStandbyConnection, true},
		{"password", code("28P01"), false},
		{"role", code("28000"), false},
		{"database", code("3D000"), false},
		{"database dropped", code("57P04"), false},
		{"right", code("42501"), false},
		{"disk", code("53100"), false},
		{"short code", code("0"), false},
		{"certificate", &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}, false},
		{"certificate of another host", x509.HostnameError{Certificate: &x509.Certificate{}}, false},
		{"alert", &net.OpError{Op: "remote error", Err: tls.AlertError(42)}, false},
		{"no TLS", errors.New("server refused TLS connection"), false},
		{"world", &fence.WorldError{}, false},
		{"argument", &fence.ArgumentError{}, false},
		{"no world", errNoWorld, false},
	} {
		require.Equal(t, c.passing, passing(fmt.Errorf("migrate: %w", c.err)), c.what)
	}
}
