package redismatch

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	Base     = baseOf
	PoolBase = poolBase
)

// Hurry shortens how long calls wait for replicas, and are repeated.
func (s *Store) Hurry(confirm, retry time.Duration) { s.own.confirm, s.own.retry = confirm, retry }

// NewMutant loads a library in which texts of the sources are replaced, under names of its own, and returns a store on
// it. edits are a text and what takes its place, and so on. remove takes the library off the servers again.
func NewMutant(
	ctx context.Context, client *redis.ClusterClient, name string, edits ...string,
) (s *Store, remove func(context.Context) error, err error) {
	text, functions := library.Text, "tilefence_"+name+"_"
	for i := 0; i+1 < len(edits); i += 2 {
		if !strings.Contains(text, edits[i]) {
			return nil, nil, fmt.Errorf("the sources do not contain %q", edits[i])
		}
		text = strings.ReplaceAll(text, edits[i], edits[i+1])
	}
	text = strings.ReplaceAll(text, "name="+libraryName, "name="+name)
	text = strings.ReplaceAll(text, "'tilefence_match_'", "'"+functions+"'")
	err = client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		return node.FunctionLoadReplace(ctx, text).Err()
	})
	if err != nil {
		return nil, nil, err
	}
	if s, err = New(client, nil); err == nil {
		s.own.functions = functions
	}
	return s, func(ctx context.Context) error {
		return client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
			return node.FunctionDelete(ctx, name).Err()
		})
	}, err
}
