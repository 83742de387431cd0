package coldrestore_test

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relayclient"
)

// client is a player's view of the tile, through a relay. It connects once and gets no other information.
type client struct {
	mu      sync.Mutex
	game    ledger
	at      fence.Position
	highest fence.Seq // ever held
	err     error
}

func watch(t *testing.T, url string, id fence.TileID) *client {
	c := &client{}
	conn, err := relayclient.Dial(t.Context(), url, &relayclient.Config{Sync: c.sync, Frame: c.frame})
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	require.NoError(t, conn.Subscribe(context.Background(), id))
	return c
}

func (c *client) sync(s relayclient.Sync) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved(s.Snapshot.Position, c.game.Restore(s.Snapshot.Blob))
}

func (c *client) frame(f fence.Entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moved(f.Position, c.game.applyBatch(&f))
}

func (c *client) moved(to fence.Position, err error) {
	c.at, c.highest = to, max(c.highest, to.Seq)
	if c.err == nil {
		c.err = err
	}
}

// state is what the client's view is worth.
func (c *client) state() (actions []string, at fence.Position, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.game.actions), c.at, c.err
}

// seen is the highest sequence the client ever held.
func (c *client) seen() fence.Seq {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.highest
}
