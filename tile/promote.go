package tile

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// takeTile takes a suspicion to the authority. nil means Serving; errDrained, that ctx has ended. Any other error
// is why the tile was not got, and the state may be anything.
func (p *TileProcessor) takeTile(ctx context.Context, s suspicion) error {
	p.timing = timing{info: TakeoverInfo{Tile: p.tile, Why: s.why, Silent: s.silent}, lap: s.began}
	if p.cfg.Pace != nil {
		done, err := p.cfg.Pace(ctx, p.Status(), s.why)
		if err != nil {
			return drainedOr(ctx, err)
		}
		if done != nil {
			defer done()
		}
	}
	if err := p.lookAgain(ctx, s); err != nil {
		return drainedOr(ctx, err)
	}
	if err := p.boot(ctx, p.warm); err != nil {
		return err
	}
	p.timing.info.Epoch = p.grant.Epoch
	p.mu.Lock()
	p.status.Owner = fence.Owner{}
	p.mu.Unlock()
	i := p.timing.info
	p.cfg.Logger.Info("tile taken over", "tile", p.tile, "epoch", i.Epoch, "why", i.Why, "silent", i.Silent, "asked", i.Asked,
		"minted", i.Minted, "replayed", i.Replayed, "installed", i.Installed, "warm", i.Warm)
	p.cfg.Hooks.TookOver(i)
	return nil
}

func drainedOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errDrained
	}
	return err
}

// errRecovered means: while the follower waited for its turn, the owner moved again, or another took over.
var errRecovered = errors.New("the tile has an owner that is alive")

// lookAgain brings the state up to date once more, so that little is left to be read when the epoch is minted. A
// follower that cannot read the tile, or write to its journal, does not take it from an owner that can.
func (p *TileProcessor) lookAgain(ctx context.Context, s suspicion) error {
	err := p.patiently(ctx, func() error {
		if _, err := p.pass(ctx); err != nil {
			return err
		}
		return p.journalAnswers(ctx)
	})
	if err != nil {
		p.report(err)
		return err
	}
	switch moved := p.watch.epoch() != s.of; {
	case s.why == SilentOwner && (moved || p.watch.silent < s.silent),
		s.why == OwnerDied && s.of > 0 && moved:
		return errRecovered
	}
	return nil
}

// catchUp reads what was committed since the follower's last look, and reports whether the state is complete. If
// not, it has to be read anew. The install checks it once more, by position and chain.
func (p *TileProcessor) catchUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		c, err := p.readTail(ctx)
		switch {
		case err != nil || !p.foldTail(&c):
			return false
		case len(c.Entries) < stream.DefaultLimit && (!c.Owner.Present() || c.Owner.Position == p.position):
			return true
		}
	}
}

// resign goes back from an attempt that failed. What was presented under the epoch it had, if any, does not
// matter: it was empty, and nobody was served.
func (p *TileProcessor) resign(s suspicion, err error) {
	var lost *fence.LostError
	var superseded *SupersededError
	var away *RedirectError
	level := slog.LevelInfo
	switch {
	case errors.As(err, &lost):
		p.watch.rival = lost.Current
	case errors.As(err, &superseded):
		o := superseded.Successor
		p.watch.rival = fence.Grant{Tile: p.tile, Epoch: o.Epoch, Contact: o.Contact}
		p.warm = false
	case errors.Is(err, errRecovered), errors.As(err, &away):
	default:
		level = slog.LevelWarn
		if p.grant.Epoch > 0 {
			p.watch.rival = p.grant // taken over from at the next attempt
		}
		p.warm = false
	}
	p.cfg.Logger.Log(context.Background(), level, "tile not taken over; it is followed", "tile", p.tile, "why", s.why, "err", err)
	p.grant, p.watch.silent = fence.Grant{}, 0
	p.mu.Lock()
	p.status.Owner = p.watch.latest()
	p.mu.Unlock()
	select {
	case why := <-p.takeOver:
		if why == HandedOver || why == Ordered {
			p.TakeOver(why) // asked for since; what died may have been somebody else
		}
	default:
	}
}

// timing measures the steps of a take-over.
type timing struct {
	info TakeoverInfo
	lap  time.Time
}

func (t *timing) add(d *time.Duration) {
	now := time.Now()
	*d += now.Sub(t.lap)
	t.lap = now
}

func (t *timing) asked()  { t.add(&t.info.Asked) }
func (t *timing) minted() { t.add(&t.info.Minted) }

func (t *timing) replayed(warm bool) {
	t.info.Warm = warm
	t.add(&t.info.Replayed)
}

func (t *timing) installed() { t.add(&t.info.Installed) }
