package tilefence_test

import (
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/tile"
)

// A member takes the contact of a living tile server and dies, again and again. It came before the server did or
// after it; the server keeps its tiles, and when it really dies they are taken as if no impostor had been.
func TestAnImpostorsDeathMovesNoTile(t *testing.T) {
	for name, before := range map[string]bool{"it comes later": false, "it was there before": true} {
		t.Run(name, func(t *testing.T) {
			b := embedded(t)
			group := b.Members.(*route.Group)
			events := make(chan int, 1000)
			follower := tileServer(t, b, tilefence.TileServerConfig{Notify: func(e route.Event, suspected int) {
				if e.Kind == route.Died {
					events <- suspected
				}
			}})
			start(t, follower)
			dying := &killable{Joiner: group}
			b.Members = dying
			owner := tileServer(t, b, tilefence.TileServerConfig{})
			impostor := func() *route.GroupMember {
				m, err := group.NewMember(owner.Contact(), new(route.Table), nil)
				require.NoError(t, err)
				go func() { _ = m.Run(t.Context()) }()
				waittest.Until(t, func() bool { return len(m.Members()) > 0 }, 10*time.Second, time.Millisecond)
				return m
			}
			var m *route.GroupMember
			if before {
				m = impostor()
			}
			var ids []fence.TileID
			for i := range fence.TileID(7) {
				ids = append(ids, plaza+i)
			}
			require.NoError(t, owner.Own(ids...))
			start(t, owner)
			require.NoError(t, owner.Host().Await(t.Context(), ids...))
			require.NoError(t, follower.Follow(ids...))
			for _, id := range ids {
				follows(t, follower, id)
			}
			for range 3 {
				if m == nil {
					m = impostor()
				}
				m.Kill()
				m = nil
				suspected := <-events
				if !before {
					assert.Zero(t, suspected, "it never held the contact")
				}
				before = false
				time.Sleep(500 * time.Millisecond) // 25 ticks
				for _, id := range ids {
					g, err := b.Authority.Lookup(t.Context(), id)
					require.NoError(t, err)
					require.Equal(t, owner.Contact(), g.Contact)
					require.EqualValues(t, 1, g.Epoch)
					require.Equal(t, tile.Following, state(follower, id))
				}
			}
			dying.member.Kill()
			assert.Equal(t, len(ids), <-events)
		})
	}
}

// killable makes members that can be killed.
type killable struct {
	route.Joiner
	member *route.GroupMember
}

func (k *killable) Join(
	contact string, table *route.Table, log *slog.Logger, notify func(route.Event),
) (route.Membership, error) {
	m, err := k.Joiner.Join(contact, table, log, notify)
	if err == nil {
		k.member = m.(*route.GroupMember)
	}
	return m, err
}
