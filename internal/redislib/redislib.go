// Package redislib puts libraries of functions onto Redis servers. A library has a revision, which rises with every
// change of its sources, and a digest of them. A server that has a higher revision is left alone.
package redislib

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Library is the source of a function library.
type Library struct {
	Name     string
	Revision int64
	Text     string // as FUNCTION LOAD takes it
	ask      string // the function that says which revision is loaded
	digest   string
}

// New puts a library together from lua/<part>.lua of each part. One of its functions, ask, answers REVISION and DIGEST,
// which the library begins with.
func New(name string, revision int64, ask string, sources embed.FS, parts ...string) *Library {
	var body strings.Builder
	for _, part := range parts {
		b, err := sources.ReadFile("lua/" + part + ".lua")
		if err != nil {
			panic(err) // the file is embedded: its absence is a build error
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	sum := sha256.Sum256([]byte(body.String()))
	l := &Library{Name: name, Revision: revision, ask: ask, digest: hex.EncodeToString(sum[:])}
	l.Text = fmt.Sprintf("#!lua name=%s\nlocal REVISION, DIGEST = %d, '%s'\n", name, revision, l.digest) + body.String()
	return l
}

// LoadOn puts the library on one master unless it, or a newer one, is there. Its error is a *fence.FunctionsError, or a
// *fence.StoreError if the server does not answer, or not yet.
func (l *Library) LoadOn(ctx context.Context, node *redis.Client) error {
	unusable := func(format string, args ...any) error {
		return &fence.FunctionsError{Node: node.Options().Addr, Detail: fmt.Sprintf(format, args...)}
	}
	for range 3 {
		revision, digest, err := l.on(ctx, node)
		switch {
		case errors.Is(err, fence.ErrFunctions):
			return err
		case Unavailable(err):
			return unanswered(node, err)
		case err != nil:
			return unusable("%v", err)
		case revision > l.Revision, revision == l.Revision && digest == l.digest && !l.altered(ctx, node):
			return nil
		case revision == l.Revision:
			return unusable("library %s has revision %d but another source; it was changed by hand: "+
				"FUNCTION DELETE %s and start again", l.Name, l.Revision, l.Name)
		}
		load := node.FunctionLoad // fails if another process, perhaps of a newer release, has just loaded it
		if revision > 0 {
			load = node.FunctionLoadReplace
		}
		err = load(ctx, l.Text).Err()
		switch {
		case err == nil:
			return nil
		case Unavailable(err):
			return unanswered(node, err)
		case !strings.Contains(err.Error(), "already exists"):
			return unusable("FUNCTION LOAD: %v (Redis 7.0 or later is needed)", err)
		}
	}
	return unusable("another library has the name %s or its functions, but no %s", l.Name, l.ask)
}

func unanswered(node *redis.Client, err error) error {
	return &fence.StoreError{Op: "load functions", Outcome: fence.ErrNotApplied,
		Err: fmt.Errorf("redis %s: %w", node.Options().Addr, err)}
}

// altered reports whether the library's source differs from ours although its digest says that it is the same. A
// user without the right to read it (ACL) has to believe the digest.
func (l *Library) altered(ctx context.Context, node *redis.Client) bool {
	list, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: l.Name, WithCode: true}).Result()
	return err == nil && len(list) == 1 && list[0].Code != l.Text
}

// on is what a server says of its library; revision 0 is none.
func (l *Library) on(ctx context.Context, node *redis.Client) (revision int64, digest string, err error) {
	reply, err := node.FCallRO(ctx, l.ask, nil).Slice()
	if Missing(err) {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	if len(reply) == 2 {
		revision, _ = reply[0].(int64)
		digest, _ = reply[1].(string)
	}
	if revision < 1 || digest == "" {
		return 0, "", &fence.FunctionsError{Node: node.Options().Addr,
			Detail: fmt.Sprintf("%s answers %v", l.ask, reply)}
	}
	return revision, digest, nil
}

// Missing reports whether a function was not run because its library is not there.
func Missing(err error) bool {
	// The one place where Redis gives no error code of its own for a case that must be distinguished.
	return err != nil && strings.HasPrefix(err.Error(), "ERR Function not found")
}
