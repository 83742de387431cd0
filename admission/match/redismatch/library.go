package redismatch

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// Revision is the revision of the function library. It rises with every change of the Lua sources; a server that
// has a higher one is left alone.
const Revision = 1

// LibraryName is the name of the function library.
const LibraryName = "tilefence_match_v1"

//go:embed lua/*.lua
var sources embed.FS

// library is the source, as FUNCTION LOAD takes it, and its digest.
var library, digest = build()

func build() (text, digest string) {
	var body strings.Builder
	for _, name := range []string{"queue", "claim", "finish", "seats", "register"} {
		b, err := sources.ReadFile("lua/" + name + ".lua")
		if err != nil {
			panic(err) // the file is embedded: its absence is a build error
		}
		body.Write(b)
	}
	sum := sha256.Sum256([]byte(body.String()))
	digest = hex.EncodeToString(sum[:])
	head := fmt.Sprintf("#!lua name=%s\nlocal REVISION, DIGEST = %d, '%s'\n", LibraryName, Revision, digest)
	return head + body.String(), digest
}

// Load puts the function library on every master, and checks that the servers do not evict keys. A library of a higher
// revision is left in place. Any number of processes may load it at once. Errors: a *fence.FunctionsError or a
// *redisfence.SettingError names the server and what to do.
func (s *Store) Load(ctx context.Context) error {
	if c, ok := s.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, prepare)
	}
	return prepare(ctx, s.client.(*redis.Client))
}

func prepare(ctx context.Context, node *redis.Client) error {
	info, err := node.Info(ctx, "memory").Result()
	if err != nil {
		return failed("load", err)
	}
	if !strings.Contains(info, "maxmemory:0\r") && !strings.Contains(info, "maxmemory_policy:noeviction") {
		return &redisfence.SettingError{Node: node.Options().Addr, Setting: "maxmemory-policy", Value: "not noeviction",
			Detail: "Redis would delete tickets and seats when memory runs out; set it to noeviction"}
	}
	return loadOn(ctx, node)
}

func loadOn(ctx context.Context, node *redis.Client) error {
	unusable := func(format string, args ...any) error {
		return &fence.FunctionsError{Node: node.Options().Addr, Detail: fmt.Sprintf(format, args...)}
	}
	for range 3 {
		reply, err := node.FCallRO(ctx, "tilefence_match_revision_v1", nil).Slice()
		missing := isFunctionMissing(err)
		switch {
		case err != nil && !missing:
			return unusable("%v", err)
		case !missing && (len(reply) != 2 || reply[0] == nil):
			return unusable("tilefence_match_revision_v1 answers %v", reply)
		case !missing && reply[0].(int64) > Revision, !missing && reply[0] == int64(Revision) && reply[1] == digest:
			return nil
		case !missing && reply[0] == int64(Revision):
			return unusable("library %s has revision %d but another source; it was changed by hand: FUNCTION DELETE "+
				"%s and start again", LibraryName, Revision, LibraryName)
		}
		load := node.FunctionLoad // fails if another process, perhaps of a newer release, has just loaded it
		if !missing {
			load = node.FunctionLoadReplace
		}
		if err = load(ctx, library).Err(); err == nil {
			return nil
		} else if !strings.Contains(err.Error(), "already exists") {
			return unusable("FUNCTION LOAD: %v (Redis 7.0 or later is needed)", err)
		}
	}
	return unusable("another library has the name %s or its functions", LibraryName)
}

func isFunctionMissing(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "ERR Function not found")
}
