package history

import (
	"context"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
)

// Authority returns an authority that passes every call on to a and records, as the client's, those about
// one tile.
func (r *Recorder) Authority(client string, a fence.Authority) fence.Authority {
	return &authority{Authority: a, recorder: r, client: always(client)}
}

type authority struct {
	fence.Authority
	recorder *Recorder
	client   clientOf
}

func (a *authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	end := a.recorder.call(a.claim(Claim, &c))
	g, err := a.Authority.Claim(ctx, c)
	end(resultOf(decision.Granted(g, err), err))
	return g, err
}

func (a *authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	end := a.recorder.call(a.claim(Promote, &c))
	g, err := a.Authority.Promote(ctx, c)
	end(resultOf(decision.Granted(g, err), err))
	return g, err
}

func (a *authority) Lookup(ctx context.Context, tile fence.TileID) (fence.Grant, error) {
	end := a.recorder.call(Record{Client: a.client(tile), Kind: Lookup, Tile: tile})
	g, err := a.Authority.Lookup(ctx, tile)
	end(resultOf(decision.Granted(g, err), err))
	return g, err
}

func (a *authority) Release(ctx context.Context, g fence.Grant) error {
	row := GrantOf(g)
	end := a.recorder.call(Record{Client: a.client(g.Tile), Kind: Release, Tile: g.Tile, Row: &row})
	err := a.Authority.Release(ctx, g)
	end(resultOf(decision.Judge(err), err))
	return err
}

func (a *authority) claim(kind Kind, c *fence.Claim) Record {
	return Record{Client: a.client(c.Tile), Kind: kind, Tile: c.Tile,
		Claim: &ClaimCall{Contact: c.Contact, ID: c.ID.String(), Expected: c.Expected, Floor: c.Floor}}
}
