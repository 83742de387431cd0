package tilefence_test

import (
	"context"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// checked is a store one of whose servers may be set up badly.
type checked struct {
	fence.Store
	bad atomic.Bool
}

func (c *checked) Check(context.Context) []error {
	if !c.bad.Load() {
		return nil
	}
	return []error{&fence.SettingError{Node: "redis 10.0.1.2:6379", Setting: "appendonly", Value: "no",
		Detail: "set appendonly yes"}}
}

// TestAnUnsafeServerIsSaid: a setting that is changed while the servers run is a problem that names the server and what
// to do. Commits go on.
func TestAnUnsafeServerIsSaid(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	store := &checked{Store: b.Store}
	b.Store = store
	plans := &checked{}
	b.Checked = []fence.Checker{plans}
	s := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, s.Own(plaza))
	start(t, s)
	await(t, s, plaza)
	becomes(t, s)
	store.bad.Store(true)
	becomes(t, s, "settings: servers of a back end would lose", "redis 10.0.1.2:6379", "appendonly is no",
		"set appendonly yes")
	outcome, err := s.Submit(t.Context(), tile.Intent{Tile: plaza, ActionID: "a", Actor: "ann"})
	require.NoError(t, err)
	require.Equal(t, stream.Applied, outcome)
	store.bad.Store(false)
	becomes(t, s)
	plans.bad.Store(true)
	becomes(t, s, "settings: servers of a back end would lose")
}
