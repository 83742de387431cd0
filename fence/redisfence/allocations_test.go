package redisfence

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/groupcommit"
)

// TestCommitAllocations bounds what a commit allocates on its way to the connection, which go-redis adds three to, and
// the reply its own.
func TestCommitAllocations(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	s, err := New(client, nil)
	require.NoError(t, err)
	l := &groupcommit.Queue[*request]{Calls: 1, Bytes: 1, Send: func(context.Context, []*request) {}}
	c := fence.Commit{Tile: 0x85283083fffffff, Epoch: 12, Contact: "owner-1.tiles.example:7000", Tick: 1000,
		Payload: make([]byte, 700),
		Prev:    fence.Position{Epoch: 12, Seq: 123456, Chain: 7}}
	allocations := testing.AllocsPerRun(100, func() {
		f := s.own.commit(&c, true)
		f.Cmder = f.command(context.Background())
		_ = l.Do(context.Background(), &f.request)
	})
	require.LessOrEqual(t, allocations, 7.0)
}
