package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

// TestTicksMayLastLonger: every pace of the options, in every class, leaves room for dilation, or needs none.
func TestTicksMayLastLonger(t *testing.T) {
	store, durable := memfence.New(), memcheckpoint.New()
	for _, tick := range []time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 3 * time.Second, time.Hour} {
		o := &options{tick: tick}
		cfg := tile.Config{TickInterval: tick, SuspectAfter: o.silence(), Durability: tile.WriteThrough,
			Limits: tile.Limits{MaxDilation: o.maxDilation()}}
		_, err := cfg.WithDefaults(tile.Seams{Authority: memfence.NewAuthority(), Store: store,
			Log: memstream.New(store), Journal: durable, Checkpoint: durable.Get})
		require.NoError(t, err, "%v", tick)
		assert.Equal(t, tick <= 3*time.Second, cfg.MaxDilation > 1)
	}
}
