package natsfanout_test

import (
	"bytes"
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/fencetest"
	"github.com/tilefence/tilefence/internal/natstest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/natsfanout"
)

func of(w fence.World) *natsfanout.Config { return &natsfanout.Config{World: w} }

// TestWorld: no other process runs, and what one enters is not read by another.
func TestWorld(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t, nil)
	fencetest.RunWorldUnrecorded(t, func(t *testing.T, w fence.World) fence.WorldKeeper {
		f := open(t, of(fence.World{Name: w.Name}), node.URL()).Quickly()
		_, err := f.Publish(t.Context(), []fanout.Message{{Tile: 7}}) // it is connected
		require.NoError(t, err)
		return f
	})
}

// TestTwoDeploymentsOfOneName: of two deployments with one name and two IDs, the second is refused, and the first goes
// on; one of the same ID, or another name, is not refused. On a cluster, the question goes to processes on every node.
func TestTwoDeploymentsOfOneName(t *testing.T) {
	t.Parallel()
	cluster := natstest.StartCluster(t, 3, nil)
	first := fence.World{Name: "game", ID: fence.NewWorldID()}
	second := fence.World{Name: "game", ID: fence.NewWorldID()}
	known := open(t, of(first), cluster[0].URL()).Quickly() // knows its ID, and was never asked to enter
	waittest.Until(t, func() bool { return cluster[1].Hears("game." + natsfanout.WorldSubject) }, patience,
		time.Millisecond)
	for _, cfg := range []*natsfanout.Config{of(second), of(fence.World{Name: "game"})} {
		refused := open(t, cfg, cluster[1].URL()).Patiently()
		waittest.Until(t, func() bool { return refused.Stats().Connected }, patience, time.Millisecond)
		_, err := refused.EnterWorld(t.Context(), second)
		var wrong *fence.WorldError
		require.ErrorAs(t, err, &wrong)
		require.Equal(t, first, wrong.Found)
		require.Equal(t, second, wrong.Want)
		require.ErrorContains(t, err, "subject game.tilefence.world")
		found, err := refused.EnterWorld(t.Context(), fence.World{})
		require.NoError(t, err)
		require.Equal(t, cfg.World, found, "a refusal teaches nothing")
		refused.Close()
	}
	waittest.Until(t, func() bool { // the other has gone
		found, err := known.EnterWorld(t.Context(), first)
		return err == nil && found == first
	}, patience, time.Millisecond)

	same := open(t, of(fence.World{Name: "game"}), cluster[1].URL()).Quickly()
	waittest.Until(t, func() bool { return same.Stats().Connected }, patience, time.Millisecond)
	found, err := same.EnterWorld(t.Context(), first)
	require.NoError(t, err)
	require.Equal(t, first, found)
	known.Close()
	late := open(t, of(second), cluster[1].URL()).Patiently()
	waittest.Until(t, func() bool { return late.Stats().Connected }, patience, time.Millisecond)
	_, err = late.EnterWorld(t.Context(), second)
	require.ErrorIs(t, err, fence.ErrWorld, "one that has entered answers too")

	staging := fence.World{Name: "staging", ID: second.ID}
	other := open(t, of(staging), cluster[1].URL()).Quickly()
	waittest.Until(t, func() bool { return other.Stats().Connected }, patience, time.Millisecond)
	found, err = other.EnterWorld(t.Context(), staging)
	require.NoError(t, err)
	require.Equal(t, staging, found)
}

// TestAnswersThatAreNone: an answer that cannot be read is counted and ignored, however large, and a question does not
// choose a subject of another kind for its answer.
func TestAnswersThatAreNone(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t, nil)
	w := fence.World{ID: fence.NewWorldID()}
	stranger, err := nats.Connect(node.URL())
	require.NoError(t, err)
	defer stranger.Close()
	odd, err := stranger.Subscribe(natsfanout.WorldSubject, func(m *nats.Msg) {
		for _, answer := range [][]byte{nil, []byte("x"), make([]byte, 32), bytes.Repeat([]byte("7"), 1<<20)} {
			_ = m.Respond(answer)
		}
	})
	require.NoError(t, err)
	require.NoError(t, stranger.Flush())
	var log buffer
	f := open(t, &natsfanout.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, node.URL()).Quickly()
	waittest.Until(t, func() bool { // the window is short
		found, err := f.EnterWorld(t.Context(), w)
		return err == nil && found == w && f.Stats().BadAnswers >= 4
	}, patience, time.Millisecond)
	require.Equal(t, 1, bytes.Count([]byte(log.String()), []byte("cannot be read")))

	require.NoError(t, odd.Unsubscribe())
	frames := make(chan []byte, 8)
	stop, err := f.Subscribe(t.Context(), 7, func(data []byte) { frames <- data })
	require.NoError(t, err)
	defer stop()
	require.NoError(t, stranger.PublishRequest(natsfanout.WorldSubject, natsfanout.Subject(7), nil))
	require.NoError(t, stranger.Flush())
	_, err = f.Publish(t.Context(), []fanout.Message{{Tile: 7, Data: []byte("a frame")}})
	require.NoError(t, err)
	answers, err := stranger.SubscribeSync(natsfanout.WorldSubject + ".mine")
	require.NoError(t, err)
	require.NoError(t, stranger.PublishRequest(natsfanout.WorldSubject, answers.Subject, nil))
	m, err := answers.NextMsg(patience)
	require.NoError(t, err)
	require.Equal(t, w.ID.String(), string(m.Data), "it has had the question before too")
	require.Equal(t, "a frame", string(<-frames))
	require.Empty(t, frames)
}

// TestNobodyToAsk: a server that is away, and a Fanout that is closed, are an error that is no other world.
func TestNobodyToAsk(t *testing.T) {
	t.Parallel()
	node := natstest.Start(t, nil)
	f := open(t, nil, node.URL()).Patiently()
	w := fence.World{ID: fence.NewWorldID()}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	node.Kill()
	waittest.Until(t, func() bool { return !f.Stats().Connected }, patience, time.Millisecond)
	f.Close()
	for _, ctx := range []context.Context{ctx, t.Context()} {
		_, err := f.EnterWorld(ctx, w)
		require.ErrorIs(t, err, fence.ErrNotApplied)
		require.NotErrorIs(t, err, fence.ErrWorld)
	}
}

// TestForbiddenToAsk: a user without the rights enters all the same, frames go on, and Check says what is missing; one
// that may ask and not answer is in order.
func TestForbiddenToAsk(t *testing.T) {
	t.Parallel()
	const tile fence.TileID = 7
	frames := natsfanout.Subject(tile)
	user := func(name string, more ...string) *server.User {
		may := &server.SubjectPermission{Allow: append(more, frames)}
		return &server.User{Username: name, Password: "p",
			Permissions: &server.Permissions{Publish: may, Subscribe: may}}
	}
	asks := user("asks", natsfanout.WorldSubject)
	asks.Permissions = &server.Permissions{Publish: asks.Permissions.Publish,
		Subscribe: &server.SubjectPermission{Allow: []string{natsfanout.WorldSubject + ".*"}}}
	node := natstest.Start(t, func(o *server.Options) {
		o.Users = []*server.User{user("old"), user("hears", natsfanout.WorldSubject+".*"),
			user("speaks", natsfanout.WorldSubject), asks,
			user("all", natsfanout.WorldSubject, natsfanout.WorldSubject+".*")}
	})
	w := fence.World{ID: fence.NewWorldID()}
	as := func(name string, cfg *natsfanout.Config) *natsfanout.Fanout {
		f := open(t, cfg, "nats://"+name+":p@"+node.URL()[len("nats://"):]).Quickly()
		waittest.Until(t, func() bool { return f.Stats().Connected }, patience, time.Millisecond)
		return f
	}
	for _, name := range []string{"old", "hears", "speaks"} {
		f := as(name, nil)
		found, err := f.EnterWorld(t.Context(), w)
		require.NoError(t, err, name)
		require.Equal(t, w, found, name)
		wrong := f.Check(t.Context())
		require.Len(t, wrong, 1, name)
		require.ErrorIs(t, wrong[0], fence.ErrSetting)
		require.ErrorContains(t, wrong[0], "deploy/nats")
		waittest.Until(t, func() bool { return f.Stats().Refused > 0 }, patience, time.Millisecond, name)
		_, err = f.Publish(t.Context(), []fanout.Message{{Tile: tile, Data: []byte("x")}})
		require.NoError(t, err, name)
		f.Close() // or it would get the question below, and may not answer
	}
	reader := as("asks", nil)
	for range 2 {
		_, err := reader.EnterWorld(t.Context(), w)
		require.NoError(t, err)
		require.Empty(t, reader.Check(t.Context()))
	}
	require.Zero(t, reader.Stats().Refused)
	all := as("all", of(w))
	_, err := all.EnterWorld(t.Context(), w)
	require.NoError(t, err)
	_, err = as("asks", nil).Patiently().EnterWorld(t.Context(), fence.World{ID: fence.NewWorldID()})
	require.ErrorIs(t, err, fence.ErrWorld)
}

// TestDeployedPermissions: under deploy/nats/permissions.conf each actor can do what it has to, and nothing else.
func TestDeployedPermissions(t *testing.T) {
	conf, err := server.ProcessConfigFile("../../../deploy/nats/permissions.conf")
	require.NoError(t, err)
	node := natstest.Start(t, func(o *server.Options) { o.Users, o.MaxPayload = conf.Users, conf.MaxPayload })
	as := func(user string) *natsfanout.Fanout {
		return open(t, nil, "nats://tilefence-"+user+":CHANGE-ME-"+user+"@"+node.URL()[len("nats://"):])
	}
	bridge, relay, viewer := as("bridge"), as("relay"), as("viewer")
	tile := anyTile()
	frame := []fanout.Message{{Tile: tile, Data: []byte("frame")}}

	got, present := make(chan []byte, 1), make(chan uint64, 10)
	stop, err := relay.Subscribe(t.Context(), tile, func(data []byte) { got <- data })
	require.NoError(t, err)
	defer stop()
	stopPresence, err := bridge.SubscribePresence(tile, func(process uint64) { present <- process })
	require.NoError(t, err)
	defer stopPresence()
	_, err = bridge.Publish(t.Context(), frame)
	require.NoError(t, err)
	require.Equal(t, []byte("frame"), <-got)
	require.NoError(t, relay.PublishPresence(t.Context(), 7, []fence.TileID{tile}))
	require.Equal(t, uint64(7), <-present)

	for _, f := range []*natsfanout.Fanout{relay, viewer} {
		_, err = f.Publish(t.Context(), frame)
		require.ErrorIs(t, err, fence.ErrNotApplied, "only bridges publish frames")
	}
	for _, f := range []*natsfanout.Fanout{bridge, viewer} {
		require.ErrorIs(t, f.PublishPresence(t.Context(), 8, []fence.TileID{tile}), fence.ErrNotApplied)
	}
	_, err = bridge.Subscribe(t.Context(), tile, func([]byte) {})
	require.ErrorIs(t, err, fence.ErrNotApplied)

	w := fence.World{ID: fence.NewWorldID()}
	found, err := bridge.Patiently().EnterWorld(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, w, found)
	asks := as("relay")
	waittest.Until(t, func() bool { return asks.Stats().Connected }, patience, time.Millisecond)
	_, err = asks.Patiently().EnterWorld(t.Context(), fence.World{ID: fence.NewWorldID()})
	require.ErrorIs(t, err, fence.ErrWorld, "bridges answer, and relays ask")
	found, err = asks.Quickly().EnterWorld(t.Context(), w)
	require.NoError(t, err)
	require.Equal(t, w, found)
	_, err = bridge.Quickly().EnterWorld(t.Context(), w)
	require.NoError(t, err)
	require.Empty(t, append(asks.Check(t.Context()), bridge.Check(t.Context())...))
	require.Zero(t, asks.Stats().Refused, "that it may not answer is in order")

	nothing := natsfanout.Observer{Frame: func(fence.TileID, int) {}, Presence: func(fence.TileID, uint64) {}}
	observe := func(f *natsfanout.Fanout) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return f.Observe(ctx, nothing)
	}
	require.NoError(t, observe(viewer))
	require.ErrorIs(t, observe(bridge), fence.ErrNotApplied)
}
