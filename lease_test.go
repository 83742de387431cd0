package tilefence_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/tile"
)

// twin is another tile server at the address of one that was made.
func twin(t *testing.T, b tilefence.Backends, of *tilefence.TileServer) *tilefence.TileServer {
	t.Helper()
	cfg := tilefence.TileServerConfig{Web: tilefence.Web{Listener: listen(t)}}
	cfg.Host.Tile.TickInterval = 20 * time.Millisecond
	s, err := tilefence.NewTileServer(of.Contact(), b, newBell, &cfg)
	require.NoError(t, err)
	return s
}

// TestTwoServersAtOneAddress: the second one is refused, and takes no tile of the first, which would know of nothing.
func TestTwoServersAtOneAddress(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	log, text := logged()
	first := tileServer(t, b, tilefence.TileServerConfig{Logger: log})
	require.NoError(t, first.Own(plaza))
	run := start(t, first)
	await(t, first, plaza)
	second := twin(t, b, first)
	require.NoError(t, second.Own(plaza))
	err := second.Run(t.Context())
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	require.ErrorContains(t, err, first.Contact())
	assert.Equal(t, 1, text.count("level=ERROR msg=\"another process tries to run at this server's address\""))
	g, err := b.Authority.Lookup(t.Context(), plaza)
	require.NoError(t, err)
	assert.EqualValues(t, 1, g.Epoch)
	assert.Equal(t, tile.Serving, state(first, plaza))

	require.NoError(t, run.stop())
	third := twin(t, b, first)
	require.NoError(t, third.Own(plaza))
	began := time.Now()
	start(t, third)
	await(t, third, plaza)
	assert.Less(t, time.Since(began), 3*time.Second, "one that has stopped in good order is not waited for")
}

// TestAServerIsStartedAgain at the address of one that was killed: it waits for its lease and begins. The old one,
// should it come back to life, ends.
func TestAServerIsStartedAgain(t *testing.T) {
	t.Parallel()
	line, b := faultinject.New(), embedded(t)
	dead := tileServer(t, line.Process(b), tilefence.TileServerConfig{})
	require.NoError(t, dead.Own(plaza))
	ended := make(chan error, 1)
	go func() { ended <- dead.Run(t.Context()) }()
	await(t, dead, plaza)
	line.Set(faultinject.Cut)
	again := b
	again.Members = new(route.Group)
	s := twin(t, again, dead)
	require.NoError(t, s.Own(plaza))
	start(t, s)
	await(t, s, plaza)
	line.Set(faultinject.Flowing)
	select {
	case err := <-ended:
		require.ErrorIs(t, err, fence.ErrInvalidArgument)
	case <-time.After(time.Minute):
		t.Fatal("two servers run at one address")
	}
	assert.Equal(t, tile.Serving, state(s, plaza))
}

// TestAnAddressIsNotKnown: a list that is not reached keeps no server from starting.
func TestAnAddressIsNotKnown(t *testing.T) {
	t.Parallel()
	line, b := faultinject.New(), embedded(t)
	log, text := logged()
	cut := b
	cut.Workers = line.Process(b).Workers
	line.Set(faultinject.Cut)
	s := tileServer(t, cut, tilefence.TileServerConfig{Logger: log})
	require.NoError(t, s.Own(plaza))
	start(t, s)
	await(t, s, plaza)
	assert.Equal(t, 1, text.count("not known whether another process has this server's address"))
}
