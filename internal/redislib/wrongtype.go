package redislib

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// Refused is a command on keys of one tile that Redis refused, and the error.
type Refused struct {
	Tile fence.TileID
	Keys []string
	Err  error
}

// WrongType reports whether Redis refused a command, or a function before it wrote, because a key is of another type
// than it has to be. Only an operator can mend that: it is damage, and no store that is away.
func WrongType(err error) bool { return redis.HasErrorPrefix(err, "WRONGTYPE") }

// Explain replaces what Redis answered to commands on keys of a wrong type by *fence.CorruptError, which names the key
// and its type, and leaves other errors. It asks for the types in one pipeline a node. If no key is of a wrong type any
// more, the error stays, and the caller tries again.
func Explain(ctx context.Context, client redis.UniversalClient, refused []*Refused) {
	if !slices.ContainsFunc(refused, func(r *Refused) bool { return WrongType(r.Err) }) {
		return
	}
	pipe := client.Pipeline()
	kinds := make([][]*redis.StatusCmd, len(refused))
	for i, r := range refused {
		if !WrongType(r.Err) {
			continue
		}
		for _, key := range r.Keys {
			kinds[i] = append(kinds[i], pipe.Type(ctx, key))
		}
	}
	_, _ = pipe.Exec(ctx) // each has its own error
	for i, r := range refused {
		for k, kind := range kinds[i] {
			if damage := foreign(r, r.Keys[k], kind); damage != nil {
				r.Err = damage
				break
			}
		}
	}
}

// ExplainOne is Explain for one command.
func ExplainOne(
	ctx context.Context, client redis.UniversalClient, tile fence.TileID, err error, keys ...string,
) error {
	r := &Refused{Tile: tile, Keys: keys, Err: err}
	Explain(ctx, client, []*Refused{r})
	return r.Err
}

// foreign is the damage if a key is of another type than it has to be. A user without the right to TYPE gets the first
// key of the call named.
func foreign(r *Refused, key string, kind *redis.StatusCmd) error {
	name, want := key[strings.LastIndexByte(key, ':')+1:], "hash"
	if name == "stream" || name == "dead" {
		want = "stream"
	}
	is := "it is a " + kind.Val()
	if err := kind.Err(); err != nil {
		_, answered := errors.AsType[redis.Error](err)
		if !answered && len(r.Keys) > 1 {
			return nil
		}
		is = "it, or another key of the tile, is of another type"
	} else if kind.Val() == want || kind.Val() == "none" {
		return nil
	}
	return &fence.CorruptError{Tile: r.Tile, What: "key " + key, Detail: fmt.Sprintf("WRONGTYPE: %s, and has to be a "+
		"%s; see what `tilectl repair %s` says of it, and delete it with `tilectl repair -apply -delete %s %s`", is,
		want, r.Tile, name, r.Tile)}
}
