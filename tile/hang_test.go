package tile_test

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// hangsAt does not return from the word poison until over is closed.
func hangsAt(over <-chan struct{}) func([][]byte) {
	return func(events [][]byte) {
		if slices.ContainsFunc(events, func(e []byte) bool { return string(e) == "poison" }) {
			<-over
		}
	}
}

// TestARulesCallThatHangsInReplay is reported as in a tick, with the place in the stream, and quarantines the tile when
// a tick would be given up: the next owner would hang as well. An operator can then skip it.
func TestARulesCallThatHangsInReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		seq := w.poisoned(tile.Config{})
		over := make(chan struct{})
		var text bytes.Buffer
		cfg := tile.Config{TakeOver: true, Logger: slog.New(slog.NewTextHandler(&text, nil))}
		p := w.fragile("b:1", cfg, &brittle{apply: hangsAt(over)})
		time.Sleep(5 * time.Second)
		s := p.Status()
		assert.Equal(t, tile.Replaying, s.State)
		require.ErrorIs(t, s.Failure, tile.ErrHangs)
		require.ErrorContains(t, s.Failure, testTile.String())
		require.ErrorContains(t, s.Failure, "at event "+fence.EventRef{Seq: seq}.String()+" of the stream")
		assert.Less(t, time.Since(s.FailedAt), 2*time.Second)
		<-p.done
		require.ErrorIs(t, p.err, tile.ErrQuarantined)
		require.ErrorIs(t, p.err, tile.ErrHangs)
		warned, failed, _ := strings.Cut(text.String(), "have not returned")
		assert.Contains(t, warned, "do not return while the tile's history is read")
		assert.Contains(t, failed, "event="+fence.EventRef{Seq: seq}.String())
		g, q := w.quarantine()
		assert.Equal(t, fence.EventRef{Seq: seq}, q.At)
		assert.Contains(t, q.Reason, "does not return")
		close(over)
		synctest.Wait() // the goroutine that was left behind ends, and does nothing more

		w.lift(q.At)
		repaired := w.fragile("c:1", tile.Config{}, &brittle{apply: choke})
		repaired.say(t, "2", "bread")
		assert.Greater(t, repaired.Status().Epoch, g.Epoch)
		require.NoError(t, repaired.drain())
	})
}

// TestAFollowerThatHangs keeps no player waiting. It is reported for as long as it hangs, and then follows.
func TestAFollowerThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		owner := w.start("a:1", tile.Config{})
		over := make(chan struct{})
		follower := w.fragile("b:1", tile.Config{Follow: true}, &brittle{apply: hangsAt(over)})
		owner.say(t, "1", "poison")
		time.Sleep(time.Minute)
		s := follower.Status()
		assert.Equal(t, tile.Following, s.State)
		require.ErrorIs(t, s.Failure, tile.ErrHangs)
		assert.Less(t, time.Since(s.FailedAt), 2*time.Second, "it still hangs")
		owner.say(t, "2", "water")
		assert.Equal(t, tile.Serving, owner.Status().State)
		close(over)
		time.Sleep(10 * time.Second)
		assert.Equal(t, owner.Status().Position, follower.Status().Position)
		follower.TakeOver(tile.Ordered)
		time.Sleep(10 * time.Second)
		assert.Equal(t, map[string]stream.Outcome{"wine": stream.Applied}, follower.outcomes("wine"))
		require.NoError(t, follower.drain())
		<-owner.done
	})
}
