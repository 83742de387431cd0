package directory_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route/directory"
	"github.com/tilefence/tilefence/internal/directorystore"
)

// sometimes is a store that can be cut off.
type sometimes struct {
	directory.Store
	away atomic.Bool
	deaf atomic.Bool // nothing is posted

	placing func() // called while moves are written
}

var errAway = errors.New("away")

func (s *sometimes) err() error {
	if s.away.Load() {
		return &fence.StoreError{Op: "test", Outcome: fence.ErrUnknownOutcome, Err: errAway}
	}
	return nil
}

func (s *sometimes) Renew(ctx context.Context, holder string, actors ...string) ([]directorystore.Record, error) {
	if err := s.err(); err != nil {
		return nil, err
	}
	return s.Store.Renew(ctx, holder, actors...)
}

func (s *sometimes) Leave(ctx context.Context, holder string, actors ...string) error {
	if err := s.err(); err != nil {
		return err
	}
	return s.Store.Leave(ctx, holder, actors...)
}

func (s *sometimes) Place(ctx context.Context, moves ...directory.Move) error {
	if s.placing != nil {
		s.placing()
	}
	if err := s.err(); err != nil {
		return err
	}
	return s.Store.Place(ctx, moves...)
}

func (s *sometimes) Post(ctx context.Context, holder string, message []byte) (bool, error) {
	if s.deaf.Load() {
		return false, errAway
	}
	return s.Store.Post(ctx, holder, message)
}

// process is one with sessions.
type process struct {
	*directory.Directory
	way  *sometimes
	stop func()

	mu       sync.Mutex
	sessions map[string]int
	told     []string
}

func start(t *testing.T, store directory.Store) *process {
	p := &process{way: &sometimes{Store: store}, sessions: map[string]int{}}
	d, err := directory.New(p.way, &directory.Config{End: p.end, Tell: p.tell})
	require.NoError(t, err)
	p.Directory = d
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	p.stop = sync.OnceFunc(func() {
		cancel()
		require.NoError(t, <-done)
	})
	synctest.Wait()
	return p
}

func (p *process) enter(actor string) {
	p.mu.Lock()
	p.sessions[actor]++
	p.mu.Unlock()
	p.Enter(actor, time.Now())
}

func (p *process) end(actor string) int {
	p.mu.Lock()
	n := p.sessions[actor]
	delete(p.sessions, actor)
	p.mu.Unlock()
	for range n {
		p.Left(actor)
	}
	return n
}

func (p *process) tell(actor string, message []byte) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, string(message))
	return p.sessions[actor]
}

func (p *process) has(actor string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[actor]
}

func (p *process) requireConnected(t *testing.T, want bool, actor string) {
	t.Helper()
	is, err := p.Connected(t.Context(), actor)
	require.NoError(t, err)
	require.Equal(t, want, is)
}

// TestSessionsAreReached: a message and an end reach the sessions of all processes, and the answer says how many.
func TestSessionsAreReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := directorystore.NewMemory()
		one, two, tool := start(t, store), start(t, store), start(t, store)
		one.enter("ann")
		two.enter("ann")
		two.enter("ann")
		two.enter("bob")
		one.Enter("", time.Now()) // a stranger
		time.Sleep(200 * time.Millisecond)
		for _, from := range []*process{one, two, tool} {
			n, err := from.Tell(t.Context(), "ann", []byte("hail"))
			require.NoError(t, err)
			require.Equal(t, 2, n)
		}
		require.Equal(t, []string{"hail", "hail", "hail"}, one.told)
		n, err := tool.End(t.Context(), "ann")
		require.NoError(t, err)
		require.Equal(t, 2, n)
		require.Zero(t, one.has("ann")+two.has("ann"))
		require.Equal(t, 1, two.has("bob"))
		time.Sleep(200 * time.Millisecond)
		one.requireConnected(t, false, "ann")
		one.requireConnected(t, true, "bob")
		n, err = one.Tell(t.Context(), "ann", []byte("hail"))
		require.NoError(t, err)
		require.Zero(t, n, "she is not connected")

		// A session that begins now was not meant, also if an earlier one takes its time to end.
		one.Enter("ann", time.Now())
		two.enter("ann")
		time.Sleep(time.Second)
		_, err = tool.End(t.Context(), "ann")
		require.NoError(t, err)
		time.Sleep(10 * time.Millisecond)
		one.enter("ann")
		one.Left("ann")
		two.enter("ann")
		time.Sleep(directorystore.TTL)
		require.Equal(t, []int{1, 1}, []int{one.has("ann"), two.has("ann")})
		require.EqualValues(t, 1, one.Stats().Ended)
		two.enter("ann")
		two.Left("ann")
		one.Left("ann")
		time.Sleep(time.Second)
		r, err := store.Look(t.Context(), "ann")
		require.NoError(t, err)
		require.Len(t, r[0].Holders, 1)
		require.Equal(t, 2, two.Stats().Players)
		for _, p := range []*process{one, two, tool} {
			p.stop()
		}
		r, err = store.Look(t.Context(), "ann", "bob")
		require.NoError(t, err)
		require.Empty(t, slices.Concat(r[0].Holders, r[1].Holders), "leases are given up")
	})
}

// TestSessionsThatAreNotReached are ended when their process renews its leases, also those that no message has reached,
// and those whose lease had ended because their process did not reach the store.
func TestSessionsThatAreNotReached(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := directorystore.NewMemory()
		one, tool := start(t, store), start(t, store)
		defer one.stop()
		defer tool.stop()
		one.enter("ann")
		time.Sleep(200 * time.Millisecond)
		tool.way.deaf.Store(true)
		n, err := tool.Tell(t.Context(), "ann", nil)
		require.ErrorIs(t, err, errAway)
		require.Zero(t, n)
		_, err = tool.End(t.Context(), "ann")
		require.ErrorIs(t, err, errAway)
		require.Equal(t, 1, one.has("ann"))
		time.Sleep(directorystore.TTL / 3)
		require.Zero(t, one.has("ann"))

		one.enter("ann")
		one.way.away.Store(true)
		time.Sleep(2 * directorystore.TTL)
		tool.requireConnected(t, false, "ann")
		n, err = tool.End(t.Context(), "ann")
		require.NoError(t, err)
		require.Zero(t, n)
		require.NotZero(t, one.Stats().Failed)
		one.way.away.Store(false)
		time.Sleep(directorystore.TTL / 3)
		require.Zero(t, one.has("ann"))

		// So is one that the game has let in before the end, and that is here after it.
		began := time.Now()
		time.Sleep(time.Second)
		_, err = tool.End(t.Context(), "ann")
		require.NoError(t, err)
		one.mu.Lock()
		one.sessions["ann"]++
		one.mu.Unlock()
		one.Enter("ann", began)
		time.Sleep(time.Second)
		require.Zero(t, one.has("ann"))

		// One that begins before its process has written its lease is ended, too.
		one.enter("ann")
		_, err = tool.End(t.Context(), "ann")
		require.NoError(t, err)
		time.Sleep(time.Second)
		require.Zero(t, one.has("ann"))
	})
}

// TestADeadProcess: its sessions are not found after a TTL, and those of the others are.
func TestADeadProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := directorystore.NewMemory()
		one, two := start(t, store), start(t, store)
		defer two.stop()
		one.enter("ann")
		two.enter("bob")
		time.Sleep(time.Second)
		one.way.away.Store(true) // it says nothing more
		one.stop()
		two.requireConnected(t, true, "ann")
		n, err := two.Tell(t.Context(), "ann", nil)
		require.NoError(t, err)
		require.Zero(t, n, "nothing listens there")
		time.Sleep(directorystore.TTL)
		two.requireConnected(t, false, "ann")
		two.requireConnected(t, true, "bob")
	})
}

func (p *process) requireAt(t *testing.T, want fence.TileID, actor string) {
	t.Helper()
	is, err := p.Where(t.Context(), actor)
	require.NoError(t, err)
	require.Equal(t, want, is, actor)
}

// TestWhereAPlayerIs: arrivals are written, also after an outage, and what the player does corrects them.
func TestWhereAPlayerIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := directorystore.NewMemory()
		gateway, owner := start(t, store), start(t, store)
		defer gateway.stop()
		defer owner.stop()
		arrives := func(tile fence.TileID, seq fence.Seq) {
			came := fence.Position{Epoch: 1, Seq: seq}
			owner.Moved(directory.Move{Actor: "ann", To: tile, At: time.Now(), Came: came},
				directory.Move{To: tile, At: time.Now()}) // no player's
		}
		gateway.requireAt(t, 0, "ann")
		gateway.enter("ann")
		gateway.Seen("ann", 1, time.Now())
		gateway.Seen("bob", 1, time.Now()) // has no session here
		time.Sleep(time.Second)
		gateway.requireAt(t, 1, "ann")
		gateway.requireAt(t, 0, "bob")

		owner.way.away.Store(true)
		arrives(2, 1)
		time.Sleep(time.Minute)
		gateway.requireAt(t, 1, "ann")
		owner.way.away.Store(false)
		time.Sleep(directorystore.TTL / 3)
		gateway.requireAt(t, 2, "ann")

		gateway.Seen("ann", 1, time.Now().Add(-2*time.Minute)) // comes late
		time.Sleep(time.Minute)
		gateway.requireAt(t, 2, "ann")
		gateway.Seen("ann", 3, time.Now()) // the arrival there was not written
		gateway.Seen("ann", 2, time.Now().Add(-time.Millisecond))
		time.Sleep(time.Second)
		gateway.requireAt(t, 3, "ann")

		none, err := store.Look(t.Context(), "")
		require.NoError(t, err)
		require.Zero(t, none[0])
		store.Forget()
		time.Sleep(directorystore.TTL / 3 * 2)
		gateway.requireAt(t, 3, "ann")
		gateway.requireConnected(t, true, "ann")
	})
}

// TestMovesAreBounded: what is not written takes bounded room; what there is no room for is counted.
func TestMovesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		owner := start(t, directorystore.NewMemory())
		defer owner.stop()
		owner.way.away.Store(true)
		var n atomic.Int64
		more := func() {
			for range 10_000 {
				owner.Moved(directory.Move{Actor: fmt.Sprint("p", n.Add(1)), To: 1, At: time.Now()})
			}
		}
		owner.way.placing = sync.OnceFunc(more)
		more()
		time.Sleep(time.Second)
		require.EqualValues(t, 20_000-16_384, owner.Stats().Dropped)
		owner.Moved(directory.Move{Actor: "ann", To: 1, At: time.Now()})
		require.EqualValues(t, 20_001-16_384, owner.Stats().Dropped)
		owner.way.away.Store(false)
		time.Sleep(directorystore.TTL)
		owner.requireAt(t, 1, "p20000")
	})
}

func TestArguments(t *testing.T) {
	_, err := directory.New(nil, nil)
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	d, err := directory.New(directorystore.NewMemory(), nil)
	require.NoError(t, err)
	_, err = d.Where(t.Context(), "")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = d.End(t.Context(), "a\n")
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	_, err = d.Tell(t.Context(), "ann", []byte(strings.Repeat("x", directorystore.MaxMessage+1)))
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, d.Run(ctx))
	require.ErrorIs(t, d.Run(ctx), fence.ErrAlreadyRun)
}
