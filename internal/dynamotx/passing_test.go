package dynamotx_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/url"
	"testing"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/dynamotx"
)

func TestPassing(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	for _, passes := range []error{&url.Error{Op: "Post", Err: refused}, io.EOF, context.DeadlineExceeded,
		&smithy.GenericAPIError{Code: "InternalServerError", Fault: smithy.FaultServer},
		&smithy.GenericAPIError{Code: "ThrottlingException", Fault: smithy.FaultClient}} {
		require.True(t, dynamotx.Passing(passes), "%v", passes)
	}
	for _, stays := range []error{&url.Error{Op: "Post", Err: errors.New("unsupported protocol scheme")},
		&url.Error{Op: "Post", Err: &tls.CertificateVerificationError{Err: errors.New("unknown authority")}},
		&smithy.GenericAPIError{Code: "AccessDeniedException", Fault: smithy.FaultClient},
		&smithy.GenericAPIError{Code: "UnrecognizedClientException", Fault: smithy.FaultClient}} {
		require.False(t, dynamotx.Passing(stays), "%v", stays)
	}
}
