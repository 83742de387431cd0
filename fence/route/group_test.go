package route_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/routetest"
)

type inProcess struct{ route.Group }

func (n *inProcess) Member(
	t *testing.T, contact string, table *route.Table, notify func(route.Event),
) (route.Membership, func()) {
	m, err := n.NewMember(contact, table, notify)
	require.NoError(t, err)
	return m, m.Kill
}

func TestGroupConformance(t *testing.T) {
	t.Parallel()
	routetest.Run(t, func(*testing.T) routetest.Network { return new(inProcess) })
}

// TestGroupInABubble: a group takes no time and no goroutines but Run's.
func TestGroupInABubble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var group route.Group
		died := make(chan time.Time, 1)
		a, err := group.NewMember("a:1", new(route.Table), func(e route.Event) {
			if e.Kind == route.Died {
				died <- time.Now()
			}
		})
		require.NoError(t, err)
		b, err := group.NewMember("b:1", new(route.Table), nil)
		require.NoError(t, err)
		go func() { _ = a.Run(t.Context()) }()
		go func() { _ = b.Run(t.Context()) }()
		synctest.Wait()
		require.Len(t, a.Members(), 2)
		killed := time.Now()
		b.Kill()
		b.Kill()
		require.Equal(t, killed, <-died)
		require.Len(t, a.Members(), 1)
		require.Empty(t, b.Members())
		require.NoError(t, b.Announce(route.Entry{Tile: 1, Epoch: 1, Contact: "b:1"}),
			"it does not know that it is dead")
	})
}

func TestGroupArguments(t *testing.T) {
	t.Parallel()
	var group route.Group
	_, err := group.NewMember("", new(route.Table), nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = group.NewMember("a:1", nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// TestKilledMemberNeverLeaves: whichever of Kill and the end of Run comes first, the others hear of a death.
func TestKilledMemberNeverLeaves(t *testing.T) {
	for range 500 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var g route.Group
			var heard []route.Event
			watcher, err := g.NewMember("a:1", new(route.Table), func(e route.Event) { heard = append(heard, e) })
			require.NoError(t, err)
			victim, err := g.NewMember("b:1", new(route.Table), nil)
			require.NoError(t, err)
			go func() { _ = watcher.Run(ctx) }()
			go func() { _ = victim.Run(ctx) }()
			synctest.Wait()
			victim.Kill()
			synctest.Wait()
			require.NotEmpty(t, heard)
			require.Equal(t, route.Died, heard[len(heard)-1].Kind)
		})
	}
}
