package tile

import (
	"context"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// PlayTicks plays n ticks of a processor at once, without Run, each until its batch is resolved.
func (p *TileProcessor) PlayTicks(ctx context.Context, n int) error {
	for range n {
		if err := p.owner.play(ctx, time.Now(), 0); err != nil {
			return err
		}
		for p.owner.pending != nil && ctx.Err() == nil {
			if err := p.owner.present(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// BootOnly takes the tile without serving it.
func (p *TileProcessor) BootOnly(ctx context.Context) error { return p.acquire(ctx) }

// Silence is the silence that a follower counts that reads the same owner hash after each gap, by the clock.
func Silence(most time.Duration, gaps ...time.Duration) time.Duration {
	var w watch
	w.saw(fence.Owner{Epoch: 1}, most)
	for _, gap := range gaps {
		time.Sleep(gap)
		w.saw(w.owner, most)
	}
	return w.silent
}
