package redisfence

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Revision is the revision of the function library this package carries. It rises with every change of
// the Lua sources; a store that has a higher one is left alone.
const Revision = 1

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
	for _, name := range []string{"prelude", "commit", "rebase", "snapshot", "mark", "trim", "register"} {
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

// Load puts the function library on every master and checks that the servers keep what they are given
// (maxmemory-policy noeviction). A library of a higher revision is left in place. It is safe to run from
// many processes at once. A *fence.FunctionsError names the server that cannot be used and why.
func (s *Store) Load(ctx context.Context) error {
	return s.eachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		if err := loadOn(ctx, node); err != nil {
			return err
		}
		return checkSettings(ctx, node)
	})
}

func (s *Store) eachMaster(ctx context.Context, f func(context.Context, *redis.Client) error) error {
	switch c := s.client.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return &fence.FunctionsError{Node: "?", Detail: fmt.Sprintf("client is a %T; use a ClusterClient or a Client", s.client)}
}

func loadOn(ctx context.Context, node *redis.Client) error {
	address := node.Options().Addr
	reply, err := node.FCallRO(ctx, "tilefence_revision_v1", nil).Slice()
	if err == nil && len(reply) == 2 {
		revision, _ := reply[0].(int64)
		switch {
		case revision > Revision:
			return nil
		case revision == Revision && reply[1] == library.digest:
			return nil
		case revision == Revision:
			return &fence.FunctionsError{Node: address, Detail: fmt.Sprintf(
				"library %s has revision %d but another source; it was changed by hand: FUNCTION DELETE %s and start again",
				LibraryName, Revision, LibraryName)}
		}
	} else if err != nil && !isFunctionMissing(err) {
		return &fence.FunctionsError{Node: address, Detail: err.Error()}
	}
	if err := node.FunctionLoadReplace(ctx, library.text).Err(); err != nil {
		return &fence.FunctionsError{Node: address, Detail: "FUNCTION LOAD: " + err.Error() + " (Redis 7.0 or later is needed)"}
	}
	return nil
}

func checkSettings(ctx context.Context, node *redis.Client) error {
	info, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return &fence.FunctionsError{Node: node.Options().Addr, Detail: err.Error()}
	}
	policy := infoField(info, "maxmemory_policy")
	limit, _ := strconv.ParseUint(infoField(info, "maxmemory"), 10, 64)
	if limit > 0 && policy != "noeviction" {
		return &fence.FunctionsError{Node: node.Options().Addr, Detail: "maxmemory-policy is " + policy +
			": Redis would delete owners and streams when memory runs out; set it to noeviction"}
	}
	return nil
}

func infoField(info, name string) string {
	for line := range strings.Lines(info) {
		if v, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func isFunctionMissing(err error) bool {
	// The one place where Redis gives no error code of its own for a case that must be told apart.
	return err != nil && strings.HasPrefix(err.Error(), "ERR Function not found")
}
