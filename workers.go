package tilefence

import (
	"cmp"
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/internal/health"
	"github.com/tilefence/tilefence/internal/setting"
	"github.com/tilefence/tilefence/internal/spawn"
	"github.com/tilefence/tilefence/internal/taskgroup"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

// Groups in which bridges and checkpoint servers share the tiles.
const (
	bridgeGroup     = "bridge"
	checkpointGroup = "checkpoint"
)

// BridgeServerConfig holds the optional settings of a BridgeServer. Nil and the zero value are valid.
type BridgeServerConfig struct {
	// Tiles lists the tiles that all bridges forward together. Default: those of which the authority has a
	// record. Tiles that are hinted are forwarded before they are listed.
	Tiles share.Lister

	// Bridge are the settings of the bridge.
	Bridge bridge.Config

	// Logger is also that of Bridge if it has none. Nil discards.
	Logger *slog.Logger
}

// BridgeServer is a complete bridge: it forwards its share of all tiles, with the other bridges that run, from the
// coordination store to fan-out.
//
// All methods may be called from any goroutine.
type BridgeServer struct {
	watched

	bridge *bridge.Bridge
	share  *share.Share
	log    *slog.Logger
	ran    atomic.Bool

	failing, unpublished health.Rising
}

// NewBridgeServer returns a bridge. A nil cfg means the defaults.
//
// It needs Log, Fanout and Workers, and Authority unless BridgeServerConfig.Tiles is set. It does no I/O and starts
// nothing. Errors: a *fence.ArgumentError.
func NewBridgeServer(b Backends, cfg *BridgeServerConfig) (*BridgeServer, error) {
	c := setting.Of(cfg)
	if err := b.listed("BridgeServer", c.Tiles, b.log(), b.fanout(), b.workers()); err != nil {
		return nil, err
	}
	c.Bridge.Logger = cmp.Or(c.Bridge.Logger, c.Logger)
	br, err := bridge.New(b.Log, b.Fanout, b.Fanout, nil, &c.Bridge)
	if err != nil {
		return nil, err
	}
	s, err := b.share(bridgeGroup, c.Tiles, br, c.Logger)
	if err != nil {
		return nil, err
	}
	server := &BridgeServer{bridge: br, share: s, log: orDiscard(c.Logger)}
	server.conditions.Of(b.Fanout, b.Workers)
	server.worlds = health.NewWorlds(b.Authority, server.log, []any{b.Log, b.Fanout, b.Workers}, nil)
	return server, nil
}

// BridgeServerStats are the figures of a bridge.
type BridgeServerStats struct {
	Bridge bridge.Stats
	Share  share.Stats // of its part of the tiles
}

// Stats returns the bridge's figures.
func (s *BridgeServer) Stats() BridgeServerStats {
	return BridgeServerStats{s.bridge.Stats(), s.share.Stats()}
}

// Run forwards until ctx ends. Then it gives its tiles to the other bridges, finishes the passes under way and
// writes its watermarks. It returns when every goroutine of the server has ended: nil, or what failed. It runs
// once: fence.ErrAlreadyRun.
func (s *BridgeServer) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return alreadyRun("BridgeServer")
	}
	if err := s.worlds.Enter(ctx); err != nil {
		return err
	}
	c := taskgroup.New(ctx, taskgroup.ForPart)
	c.Start("bridge", s.bridge.Run)
	c.Start("worlds", s.worlds.Watch)
	c.Start("share", s.share.Run)
	c.Start("conditions", s.conditions.Watch)
	c.Start("health", func(ctx context.Context) error { return s.loop.Log(ctx, s.log, s.problems) })
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}

// CheckpointServerConfig holds the optional settings of a CheckpointServer. Nil and the zero value are valid.
type CheckpointServerConfig struct {
	// Tiles lists the tiles that all checkpoint servers copy together. Default: those of which the authority
	// has a record. Tiles that are hinted are copied before they are listed.
	Tiles share.Lister

	// Checkpoint are the settings of the checkpointer. Its Unsettled is tile.Unsettled by default, and its Wake has
	// tile servers that spawn (TileServerConfig.Spawn) begin the tiles that need an owner.
	Checkpoint checkpoint.Config

	// Logger is also that of Checkpoint if it has none. Nil discards.
	Logger *slog.Logger
}

// CheckpointServer is a complete checkpointer: it copies the snapshots of its share of all tiles, with the other
// checkpoint servers that run, to the durable store, and truncates their journals.
//
// All methods may be called from any goroutine.
type CheckpointServer struct {
	watched

	checkpointer *checkpoint.Checkpointer
	share        *share.Share
	log          *slog.Logger
	ran          atomic.Bool
}

// NewCheckpointServer returns a checkpointer. A nil cfg means the defaults.
//
// It needs Log, Fanout, Durable and Workers, and Authority unless CheckpointServerConfig.Tiles is set. It does no
// I/O and starts nothing. Errors: a *fence.ArgumentError.
func NewCheckpointServer(b Backends, cfg *CheckpointServerConfig) (*CheckpointServer, error) {
	c := setting.Of(cfg)
	if err := b.listed("CheckpointServer", c.Tiles, b.log(), b.fanout(), b.durable(), b.workers()); err != nil {
		return nil, err
	}
	c.Checkpoint.Logger = cmp.Or(c.Checkpoint.Logger, c.Logger)
	if c.Checkpoint.Unsettled == nil {
		c.Checkpoint.Unsettled = tile.Unsettled
	}
	if c.Checkpoint.Wake == nil {
		c.Checkpoint.Wake = spawn.Caller(b.Workers, orDiscard(c.Logger))
	}
	cp, err := checkpoint.New(b.Log, b.Durable, b.Durable, nil, &c.Checkpoint)
	if err != nil {
		return nil, err
	}
	s, err := b.share(checkpointGroup, c.Tiles, cp, c.Logger)
	if err != nil {
		return nil, err
	}
	server := &CheckpointServer{checkpointer: cp, share: s, log: orDiscard(c.Logger)}
	server.worlds = health.NewWorlds(b.Authority, server.log, []any{b.Log, b.Durable}, []any{b.Workers, b.Fanout})
	return server, nil
}

// syncTimeout bounds what a checkpoint server that stops asks of the list of servers and of the authority.
const syncTimeout = 2 * time.Second

// CheckpointServerStats are the figures of a checkpoint server.
type CheckpointServerStats struct {
	Checkpointer checkpoint.Stats
	Share        share.Stats // of its part of the tiles
}

// Stats returns the checkpoint server's figures.
func (s *CheckpointServer) Stats() CheckpointServerStats {
	return CheckpointServerStats{s.checkpointer.Stats(), s.share.Stats()}
}

// Run copies snapshots until ctx ends. Then it makes a last attempt at each of its tiles, those of a server that has
// just stopped included, and gives them to the other checkpoint servers. It returns when every goroutine of the server
// has ended: nil, or what failed. It runs once: fence.ErrAlreadyRun.
func (s *CheckpointServer) Run(ctx context.Context) error {
	if s.ran.Swap(true) {
		return alreadyRun("CheckpointServer")
	}
	// The last pass is over the tiles that the share has given, so the checkpointer stops first; and the share asks
	// once more before, since what it knows may be ten seconds old.
	if err := s.worlds.Enter(ctx); err != nil {
		return err
	}
	c := taskgroup.New(ctx, taskgroup.ForPart)
	c.Start("worlds", s.worlds.Watch)
	c.Start("share", s.share.Run)
	c.Start("checkpointer", s.checkpointer.Run)
	c.OnStop("list", func(by time.Time) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(syncTimeout, time.Until(by)))
		defer cancel()
		s.share.Sync(ctx)
	})
	c.Start("health", func(ctx context.Context) error { return s.loop.Log(ctx, s.log, s.problems) })
	c.Wait(ctx)
	return c.Stop(taskgroup.StopBy(ctx, StopTimeout))
}

// orDiscard is a logger to write to.
func orDiscard(l *slog.Logger) *slog.Logger {
	if l == nil {
		return slog.New(slog.DiscardHandler)
	}
	return l
}

// listed is require for servers that work on all tiles.
func (b *Backends) listed(server string, tiles share.Lister, needed ...backend) error {
	if tiles == nil {
		needed = append([]backend{b.authority()}, needed...)
	}
	return require(server, needed...)
}

// share divides the tiles among the servers of a group.
func (b *Backends) share(
	group string, tiles share.Lister, target share.Target, logger *slog.Logger,
) (*share.Share, error) {
	if tiles == nil {
		tiles = share.Recorded(b.Authority)
	}
	return share.New(b.Workers, group, tiles, target, &share.Config{Hints: b.Fanout, Logger: logger})
}
