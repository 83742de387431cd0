package redisfence

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/redislib"
)

// Revision is the revision of the function library.
const Revision = revision

// PipelineCommit adds to a pipeline what Store.Commit sends.
func (s *Store) PipelineCommit(ctx context.Context, pipe redis.Pipeliner, c *fence.Commit) *redis.Cmd {
	renew := c.Install || c.Refresh() || s.own.renewals.due(c.Tile)
	if renew {
		s.own.renewals.renewed(c.Tile, time.Now())
	}
	f := s.own.commit(c, renew)
	cmd := f.command(ctx)
	_ = pipe.Process(ctx, cmd)
	return cmd
}

// AgeRenewal makes the last renewal of a tile's owner hash look as if it had been so much earlier.
func (s *Store) AgeRenewal(tile fence.TileID, d time.Duration) {
	s.own.renewals.mu.Lock()
	defer s.own.renewals.mu.Unlock()
	if at, ok := s.own.renewals.at[tile]; ok {
		s.own.renewals.at[tile] = at.Add(-d)
	}
}

// ForgetChecks makes the next Check ask the servers, as a minute later or a change of the topology would.
func ForgetChecks(s *Store) { s.own.checks = redislib.Checks{} }

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c Config) With(t Tuning) *Config {
	c.tuning = t
	return &c
}
