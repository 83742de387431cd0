package redisviewcache

import (
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/viewstore"
)

// Mutate puts an error into the library of this process, which then has another name than the real one.
func Mutate(edits ...string) (changed bool) {
	text := strings.NewReplacer(edits...).Replace(source)
	library = build(text)
	return text != source
}

// Keys are the keys of a tile's group, and its own lock, in the world without a name.
func Keys(tile fence.TileID) []string { return keysOf(fence.World{}, tile) }

// NewWith is New with limits of which tests change all; nil limits are the defaults.
func NewWith(client redis.UniversalClient, world fence.World, limits *viewstore.Limits) (*Store, error) {
	return open(client, world, setting.Of(limits))
}
