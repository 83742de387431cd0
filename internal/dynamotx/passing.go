package dynamotx

import (
	"crypto/tls"
	"errors"
	"io"
	"net"

	"github.com/aws/smithy-go"
)

// Passing reports whether an error ends without a change of settings: the server does not answer, or is itself at
// fault. A wrong key or URL, a right that is missing, or a certificate that is not trusted fails again however often
// it is tried.
func Passing(err error) bool {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorFault() == smithy.FaultServer || Throttled(err)
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return false
	}
	if _, ok := errors.AsType[*net.OpError](err); ok {
		return true
	}
	late, ok := errors.AsType[net.Error](err)
	return ok && late.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}
