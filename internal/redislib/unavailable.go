package redislib

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Unavailable reports whether an error says that a server does not answer, or not yet, and may later: it is down, is
// starting, or is being replaced. An error of the configuration, such as a wrong password, a right that is missing or
// a certificate that is not trusted, stays.
func Unavailable(err error) bool {
	if err == nil || errors.Is(err, fence.ErrFunctions) || errors.Is(err, fence.ErrSetting) ||
		errors.Is(err, fence.ErrInvalidArgument) {
		return false
	}
	if distrusted(err) {
		return false
	}
	reply, ok := errors.AsType[redis.Error](err)
	if !ok {
		return true
	}
	_, moved := redis.IsMovedError(reply)
	return moved || slices.ContainsFunc(passing, func(is func(error) bool) bool { return is(reply) }) ||
		strings.HasPrefix(reply.Error(), "MISCONF ") || strings.HasPrefix(reply.Error(), "BUSY ")
}

// passing are the replies of a server that may answer otherwise later.
var passing = []func(error) bool{redis.IsLoadingError, redis.IsReadOnlyError, redis.IsClusterDownError,
	redis.IsTryAgainError, redis.IsMasterDownError, redis.IsMaxClientsError, redis.IsNoReplicasError, redis.IsOOMError}

// distrusted reports whether a connection ended because its two ends do not agree on TLS.
func distrusted(err error) bool {
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	return certificate || plain || authority
}
