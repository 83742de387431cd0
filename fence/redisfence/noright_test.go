package redisfence_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// reply is an error that a Redis server answers.
type reply string

func (r reply) Error() string { return string(r) }
func (reply) RedisError()     {}

// answering has every command answered with an error.
type answering struct{ redis.Hook }

func (a answering) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		cmd.SetErr(reply("NOPERM No permissions to access a key"))
		return cmd.Err()
	}
}
func (a answering) DialHook(next redis.DialHook) redis.DialHook { return next }
func (a answering) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestLoadWithoutTheRight: a right that is missing does not come by waiting, so Load does not say that it may.
func TestLoadWithoutTheRight(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	client.AddHook(answering{})
	store, err := redisfence.New(client, &redisfence.Config{AllowNoReplicas: true,
		World: fence.World{Name: "a", ID: fence.NewWorldID()}})
	require.NoError(t, err)
	err = store.Load(t.Context())
	_, away := errors.AsType[*fence.StoreError](err)
	require.False(t, away, "%v", err)
	require.ErrorContains(t, err, "deploy/acl")
}
