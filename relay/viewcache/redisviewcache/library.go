package redisviewcache

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
)

//go:embed views.lua
var source string

// library is the function library. Its name and those of its functions begin with the digest of its source, so that
// releases with different functions work beside each other, and none replaces another's.
var library = build(source)

type functions struct{ prefix, text string }

func build(source string) functions {
	sum := sha256.Sum256([]byte(source))
	name := "tilefence_views_" + hex.EncodeToString(sum[:4])
	return functions{name + "_", "#!lua name=" + name + "\nlocal PREFIX = '" + name + "_'\n" + source}
}

// load puts the library on the master that has a tile's group: a server that was started anew or flushed has none.
func (s *Store) load(ctx context.Context, tile fence.TileID) error {
	node, err := redislib.Master(ctx, s.client, keysOf(s.world, tile)[0])
	if err != nil {
		return err
	}
	err = node.FunctionLoad(ctx, library.text).Err()
	if err != nil && strings.Contains(err.Error(), "already exists") {
		return nil // another relay was faster
	}
	return err
}
