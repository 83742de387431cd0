package admission_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// instant is a tile that answers at once.
type instant struct{}

func (instant) Forward(context.Context, string, tile.Intent) (tile.Result, error) {
	return tile.Result{Outcome: stream.Applied}, nil
}

func (instant) Owner(_ context.Context, id fence.TileID) (fence.Owner, error) {
	return fence.Owner{Tile: id, Epoch: 1, Contact: "a"}, nil
}

// BenchmarkGateway is what the gateway itself costs, the tile and for Move the ledger taking no time.
func BenchmarkGateway(b *testing.B) {
	r := newRig(b, nil)
	router, err := route.NewRouter(new(route.Table), instant{}, nil)
	require.NoError(b, err)
	gate, err := admission.NewGateway(r.ledger, router, instant{}, admission.ClientPrices, &admission.GatewayConfig{
		MoveRate: admission.Rate{PerSecond: 1e9, Burst: 1e9},
		ActRate:  admission.Rate{PerSecond: 1e9, Burst: 1e9},
	})
	require.NoError(b, err)
	b.Run("Move", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := gate.Move(b.Context(), tile.Intent{Tile: here, Actor: "ann"}); err != nil {
					b.Error(err)
				}
			}
		})
	})
	b.Run("Act", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := gate.Act(b.Context(),
				admission.Action{ID: admission.NewActionID(), Actor: "ann", Asset: "dash", Tile: here}); err != nil {
				b.Error(err)
			}
		}
	})
}
