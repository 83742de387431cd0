package redisfence

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Revision is the revision of the function library this package carries. It rises with every change of
// the Lua sources; a store that has a higher one is left alone.
const Revision = 10

// LibraryName is the name of the function library. It holds the wire contract's major version, so that
// two releases can run side by side.
const LibraryName = "tilefence_v1"

//go:embed lua/*.lua
var sources embed.FS

// Library is the source of the function library, as FUNCTION LOAD takes it.
func Library() string { return library.text }

var library = build()

type builtLibrary struct{ text, digest string }

func build() builtLibrary {
	var body strings.Builder
	for _, name := range []string{"prelude", "commit", "rebase", "snapshot", "mark", "trim", "expire", "register"} {
		b, err := sources.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the file is embedded: its absence is a build error
		}
		body.Write(b)
		body.WriteByte('\n')
	}
	sum := sha256.Sum256([]byte(body.String()))
	digest := hex.EncodeToString(sum[:])
	head := fmt.Sprintf("#!lua name=%s\nlocal REVISION, DIGEST = %d, '%s'\n", LibraryName, Revision, digest)
	return builtLibrary{text: head + body.String(), digest: digest}
}

// Load puts the function library on every master and checks that the servers keep what they are given: that
// they do not evict (maxmemory-policy noeviction) and, unless Config.AllowNoPersistence is set, that they write
// an append-only file. A library of a higher revision is left in place. It is safe to run from many processes
// at once. Errors: a *SettingError or a *fence.FunctionsError names the server that
// cannot be used and why; a *fence.StoreError one that could not be asked.
func (s *Store) Load(ctx context.Context) error {
	s.warnOfSlowReload()
	return s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := s.checkSettings(ctx, node); err != nil {
			return err
		}
		return loadOn(ctx, node)
	})
}

func (s *Store) eachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return &fence.FunctionsError{Node: "?", Detail: fmt.Sprintf("client is a %T; use a ClusterClient or a Client",
		s.client)}
}

// loadOn puts the library on one master unless it, or a newer one, is there.
func loadOn(ctx context.Context, node *redis.Client) error {
	unusable := func(format string, args ...any) error {
		return &fence.FunctionsError{Node: node.Options().Addr, Detail: fmt.Sprintf(format, args...)}
	}
	for range 3 {
		has, err := revisionOn(ctx, node)
		switch {
		case err != nil:
			return unusable("%v", err)
		case has.revision > Revision:
			return nil
		case has.revision == Revision && has.digest == library.digest && !altered(ctx, node):
			return nil
		case has.revision == Revision:
			return unusable("library %s has revision %d but another source; it was changed by hand: "+
				"FUNCTION DELETE %s and start again",
				LibraryName, Revision, LibraryName)
		}
		load := node.FunctionLoad // fails if another process, perhaps of a newer release, has just loaded it
		if has.revision > 0 {
			load = node.FunctionLoadReplace
		}
		err = load(ctx, library.text).Err()
		switch {
		case err == nil:
			return nil
		case !strings.Contains(err.Error(), "already exists"):
			return unusable("FUNCTION LOAD: %v (Redis 7.0 or later is needed)", err)
		}
	}
	return unusable("another library has the name %s or its functions, but no tilefence_revision_v1", LibraryName)
}

// altered reports whether the library's source differs from ours although its digest says that it is the same. A
// user without the right to read it (ACL) has to believe the digest.
func altered(ctx context.Context, node *redis.Client) bool {
	list, err := node.FunctionList(ctx, redis.FunctionListQuery{LibraryNamePattern: LibraryName,
		WithCode: true}).Result()
	return err == nil && len(list) == 1 && list[0].Code != library.text
}

// loaded is what a server says of its library; revision 0 is none.
type loaded struct {
	revision int64
	digest   string
}

func revisionOn(ctx context.Context, node *redis.Client) (loaded, error) {
	reply, err := node.FCallRO(ctx, "tilefence_revision_v1", nil).Slice()
	switch {
	case isFunctionMissing(err):
		return loaded{}, nil
	case err != nil:
		return loaded{}, err
	case len(reply) != 2:
		return loaded{}, fmt.Errorf("tilefence_revision_v1 answers %v", reply)
	}
	revision, ok1 := reply[0].(int64)
	digest, ok2 := reply[1].(string)
	if !ok1 || !ok2 || revision < 1 {
		return loaded{}, fmt.Errorf("tilefence_revision_v1 answers %v", reply)
	}
	return loaded{revision, digest}, nil
}

func isFunctionMissing(err error) bool {
	// The one place where Redis gives no error code of its own for a case that must be told apart.
	return err != nil && strings.HasPrefix(err.Error(), "ERR Function not found")
}
