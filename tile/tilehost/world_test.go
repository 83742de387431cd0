package tilehost_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/internal/ledgertest"
)

const testTile fence.TileID = 0x85283083fffffff

type ledgerRules = ledgertest.Ledger

// newRules makes the rules of tiles whose state no test reads.
func newRules(fence.TileID) (tile.Rules, error) { return &ledgerRules{}, nil }

// world is a set of embedded back ends for the hosts of a test.
type world struct {
	t         *testing.T
	store     *memfence.Store
	log       *memstream.Log
	authority *memfence.Authority
	handover  func(context.Context, tile.Handover) error // of the hosts that begin from now on
}

func newWorld(t *testing.T) *world {
	s := memfence.New()
	return &world{t: t, store: s, log: memstream.New(s), authority: memfence.NewAuthority()}
}

func (w *world) seams() tile.Seams {
	return tile.Seams{Authority: w.authority, Store: w.store, Log: w.log, Handover: w.handover}
}

// tiles are n neighbouring tiles.
func tiles(n int) []fence.TileID {
	ids := make([]fence.TileID, n)
	for i := range ids {
		ids[i] = testTile + fence.TileID(i)<<20
	}
	return ids
}

// wordsOf is what a tile's committed history says.
func wordsOf(t *testing.T, log stream.Log, id fence.TileID) []string {
	t.Helper()
	words, err := ledgertest.Committed(context.Background(), log, id)
	require.NoError(t, err)
	return words
}
