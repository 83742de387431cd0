package tile

import (
	"context"
	"time"
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

// Agreed is how often a follower's state was found to be the owner's since it was not.
func (p *TileProcessor) Agreed() int { return p.history.Agreed }

// BootOnly takes the tile without serving it.
func (p *TileProcessor) BootOnly(ctx context.Context) error { return p.acquire(ctx) }
