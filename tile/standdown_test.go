package tile_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// stuckSnapshots is a store that saves no snapshot and does not say so before it is released, whatever the context
// says.
type stuckSnapshots struct {
	fence.Store
	began   chan struct{} // capacity 1
	release chan struct{}
}

func (s *stuckSnapshots) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	select {
	case s.began <- struct{}{}:
	default:
	}
	<-s.release
	return &fence.StoreError{Op: "snapshot", Tile: w.Tile, Outcome: fence.ErrUnknownOutcome, Err: errors.New("gave up")}
}

// TestStandingDownRedirectsBeforeTheSnapshotIsSaved: no client waits for a store that hangs.
func TestStandingDownRedirectsBeforeTheSnapshotIsSaved(t *testing.T) {
	for name, handedOver := range map[string]bool{"superseded": false, "handed over": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				store := &stuckSnapshots{Store: w.store, began: make(chan struct{}, 1), release: make(chan struct{})}
				release := sync.OnceFunc(func() { close(store.release) })
				t.Cleanup(release)
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				var b *runner
				a := startOn(t, tile.Seams{Authority: w.authority, Store: store, Log: w.log,
					Handover: func(context.Context, tile.Handover) error {
						b = w.start("b:1", tile.Config{TakeOver: true})
						b.say(t, "", "two")
						return nil
					}}, "a:1", tile.Config{SnapshotEvery: 4})
				a.say(t, "", "one")
				<-store.began
				redirected := make(chan error, 1)
				if handedOver {
					waits := make(chan error, 1)
					go func() { waits <- a.Drain(t.Context(), "b:1") }()
					time.Sleep(time.Millisecond)
					go func() {
						_, err := a.Submit(ctx, tile.Intent{Tile: testTile, Body: []byte("three")})
						redirected <- err
					}()
					require.NoError(t, <-waits)
				} else {
					b = w.start("b:1", tile.Config{TakeOver: true})
					b.say(t, "", "two")
					_, err := a.Submit(ctx, tile.Intent{Tile: testTile, Body: []byte("three")})
					redirected <- err
					select {
					case <-a.Superseded():
					case <-ctx.Done():
						t.Fatal("it has not stood down")
					}
				}
				began := time.Now()
				synctest.Wait()
				var away *tile.RedirectError
				var unresolved *tile.UnresolvedError
				err := <-redirected
				if !errors.As(err, &unresolved) { // it was in the batch that the store refused
					require.ErrorAs(t, err, &away)
				}
				_, err = a.Submit(ctx, tile.Intent{Tile: testTile, Body: []byte("four")})
				require.ErrorAs(t, err, &away)
				assert.Equal(t, "b:1", away.Contact)
				assert.Zero(t, time.Since(began), "at once")
				select {
				case <-a.done:
					t.Error("Run returned before its snapshot was saved or given up")
				default:
				}
				release()
				<-a.done
				if !handedOver {
					require.ErrorIs(t, a.err, tile.ErrSuperseded)
				}
				require.NoError(t, b.drain())
			})
		})
	}
}

// silentAuthority, while it is set to, answers nothing before the caller gives up.
type silentAuthority struct {
	fence.Authority
	silent chan struct{} // closed when it answers again
}

func (a *silentAuthority) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	select {
	case <-a.silent:
		return a.Authority.Lookup(ctx, id)
	case <-ctx.Done():
		return fence.Grant{}, &fence.StoreError{Op: "lookup", Tile: id, Outcome: fence.ErrNotApplied,
			Err: context.Cause(ctx)}
	}
}

// submit sends an intent in the background.
func submit(p *tile.TileProcessor, action, word string) <-chan error {
	answered := make(chan error, 1)
	go func() {
		o, err := p.Submit(context.Background(), tile.Intent{Tile: testTile, ActionID: action, Body: []byte(word)})
		if err == nil && o.Outcome != stream.Applied {
			err = assert.AnError
		}
		answered <- err
	}()
	return answered
}

// An owner that the store refuses in favour of a successor redirects its clients at once, however long the authority
// does not answer; what it has presented it answers when the authority has said whose the tile is.
func TestRefusedOwnerRedirectsWhileTheAuthorityIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		authority := &silentAuthority{Authority: w.authority, silent: make(chan struct{})}
		close(authority.silent)
		a := startOn(t, tile.Seams{Authority: authority, Store: w.store, Log: w.log}, "a:1", tile.Config{})
		a.say(t, "", "one")
		authority.silent = make(chan struct{})
		b := w.start("b:1", tile.Config{TakeOver: true})
		b.say(t, "", "two")

		presented := submit(a.TileProcessor, "p", "presented")
		time.Sleep(500 * time.Millisecond) // one tick
		began := time.Now()
		for range 20 {
			_, err := a.Submit(t.Context(), tile.Intent{Tile: testTile, Body: []byte("x")})
			var away *tile.RedirectError
			require.ErrorAs(t, err, &away)
			require.Equal(t, "b:1", away.Contact)
			require.Equal(t, b.Status().Epoch, away.Epoch)
		}
		require.Zero(t, time.Since(began), "at once")
		time.Sleep(time.Minute)
		require.Equal(t, tile.Serving, a.Status().State, "it does not stand down on the store's word")
		require.Empty(t, presented)

		close(authority.silent)
		<-a.done
		require.ErrorIs(t, a.err, tile.ErrSuperseded)
		require.ErrorIs(t, <-presented, tile.ErrUnresolved)
		require.NoError(t, b.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

// An intent that waited in the queue when the refusal came is redirected with it.
func TestQueuedIntentsAreRedirectedWithinATick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.eventually(t, tile.Serving, time.Second)
		a.words(t, "one")
		a.line.set(func(l *line) { l.authority = true })
		b := w.start("b:1", tile.Config{TakeOver: true})
		b.say(t, "", "two")
		a.pause()
		time.Sleep(time.Second) // a refresh is on its way
		queued := submit(a.TileProcessor, "q", "queued")
		synctest.Wait()
		began := time.Now()
		a.resume()
		require.ErrorIs(t, <-queued, tile.ErrRedirect)
		require.LessOrEqual(t, time.Since(began), 500*time.Millisecond)
		a.line.set(func(l *line) { l.authority = false })
		<-a.done
		require.ErrorIs(t, a.err, tile.ErrSuperseded)
		require.NoError(t, b.drain())
	})
}

// The authority says that the tile is the refused owner's after all: the owner serves again.
func TestRefusedOwnerServesAgainWhenTheTileIsItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.process("a:1", tile.Config{})
		a.eventually(t, tile.Serving, time.Second)
		a.words(t, "one")
		a.line.set(func(l *line) { l.authority = true })
		w.store.Update(testTile, func(s *memfence.State) { s.Owner.Epoch, s.Owner.Contact = 40, "ghost:1" })
		time.Sleep(time.Second)
		a.asks(t, "ghost:1")
		a.line.set(func(l *line) { l.authority = false })
		time.Sleep(2 * time.Second)
		a.words(t, "two")
		assert.Greater(t, a.Status().Epoch, fence.Epoch(40))
		assert.Zero(t, a.Status().Owner)
		require.NoError(t, a.drain())
		assert.Equal(t, []string{"one", "two"}, w.history())
	})
}

func (p *process) words(t *testing.T, words ...string) {
	t.Helper()
	for _, w := range words {
		require.Equal(t, stream.Applied, p.say(t, w, w))
	}
}
