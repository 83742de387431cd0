package redisfence

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// PipelineCommit adds to a pipeline what Store.Commit sends.
func (s *Store) PipelineCommit(ctx context.Context, pipe redis.Pipeliner, c *fence.Commit) *redis.Cmd {
	f := s.commit(c)
	cmd := f.command(ctx)
	_ = pipe.Process(ctx, cmd)
	return cmd
}
