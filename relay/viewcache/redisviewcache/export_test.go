package redisviewcache

import (
	"strings"

	"github.com/tilefence/tilefence/fence"
)

// Mutate puts an error into the library of this process, which then has another name than the real one.
func Mutate(edits ...string) (changed bool) {
	text := strings.NewReplacer(edits...).Replace(source)
	library = build(text)
	return text != source
}

// Keys are the keys of a tile's group, and its own lock, in the world without a name.
func Keys(tile fence.TileID) []string { return keysOf(fence.World{}, tile) }
