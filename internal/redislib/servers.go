package redislib

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Usable refuses a client that is neither of a cluster nor of a single server, with a *fence.ArgumentError.
func Usable(client redis.UniversalClient) error {
	switch c := client.(type) {
	case *redis.ClusterClient:
		if c != nil {
			return nil
		}
	case *redis.Client:
		if c != nil {
			return nil
		}
	}
	return &fence.ArgumentError{Field: "client", Value: fmt.Sprintf("%T", client),
		Want: "a *redis.ClusterClient or a *redis.Client"}
}

// Master is the server that has a key, as far as a usable client knows.
func Master(ctx context.Context, client redis.UniversalClient, key string) (*redis.Client, error) {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return client.(*redis.Client), nil
}

// EachMaster calls f for all masters of a usable client, several at once.
func EachMaster(
	ctx context.Context, client redis.UniversalClient, f func(context.Context, *redis.Client) error,
) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, f)
	}
	return f(ctx, client.(*redis.Client))
}

// Settle clears the error of a function call whose reply was read whole. A connection that breaks in the middle of a
// pipeline leaves its error in every command of it, also in those that were answered before; of the reply in which it
// breaks go-redis leaves a nil list or an empty text.
func Settle(cmd redis.Cmder) {
	call, ok := cmd.(*redis.Cmd)
	if !ok {
		return
	}
	switch v := call.Val().(type) {
	case nil:
		return
	case []any:
		ok = v != nil
	case string:
		ok = v != ""
	}
	if ok {
		call.SetErr(nil)
	}
}

// Call is a command that calls a function on its keys.
func Call(ctx context.Context, how, function string, keys []string, args ...any) *redis.Cmd {
	all := make([]any, 0, 3+len(keys)+len(args))
	all = append(all, how, function, len(keys))
	for _, k := range keys {
		all = append(all, k)
	}
	cmd := redis.NewCmd(ctx, append(all, args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// Unavailable reports whether an error says that a server does not answer, or not yet, and may later: it is down, is
// starting, or is being replaced. An error of the configuration, such as a wrong password, a right that is missing or
// a certificate that is not trusted, stays.
func Unavailable(err error) bool {
	if err == nil || errors.Is(err, fence.ErrFunctions) || errors.Is(err, fence.ErrSetting) ||
		errors.Is(err, fence.ErrInvalidArgument) || errors.Is(err, fence.ErrWorld) || errors.Is(err, fence.ErrCorrupt) {
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
