package tile

import (
	"context"
	"time"
)

// PlayTicks plays n ticks of a processor at once, without Run.
func (p *TileProcessor) PlayTicks(ctx context.Context, n int) error {
	for range n {
		if err := p.play(ctx, time.Now(), 0); err != nil {
			return err
		}
	}
	return nil
}

// BootOnly takes the tile without serving it.
func (p *TileProcessor) BootOnly(ctx context.Context) error { return p.boot(ctx, false) }
