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

// TestStandingDownRedirectsBeforeTheSnapshotIsSaved: nobody waits for a store that hangs.
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
