package tilefence_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/faultinject"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

func logged() (*slog.Logger, *lines) {
	l := &lines{}
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelInfo})), l
}

// health is what ReadyHandler answers.
func health(t *testing.T, servers ...tilefence.Server) (status int, problems []string) {
	t.Helper()
	w := httptest.NewRecorder()
	tilefence.ReadyHandler(servers...).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	var answer struct {
		Healthy  bool
		Problems []string
	}
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &answer))
	assert.Equal(t, w.Code == http.StatusOK, answer.Healthy)
	assert.Equal(t, answer.Healthy, answer.Problems == nil)
	return w.Code, answer.Problems
}

// becomes waits until a process has a problem in whose text each of the words is, or none without words.
func becomes(t *testing.T, s tilefence.Server, words ...string) {
	t.Helper()
	waittest.Until(t, func() bool {
		status, problems := health(t, s)
		if len(words) == 0 {
			return status == http.StatusOK
		}
		text := strings.Join(problems, "\n")
		for _, word := range words {
			if !strings.Contains(text, word) {
				return false
			}
		}
		return true
	}, 30*time.Second, 20*time.Millisecond, "%q", words)
}

// TestAFrozenStoreIsSaid: the coordination store hangs for a while. The tile server's health names the plane, its log
// says so once, and that it is over.
func TestAFrozenStoreIsSaid(t *testing.T) {
	t.Parallel()
	line, b := faultinject.New(), embedded(t)
	log, text := logged()
	s := tileServer(t, line.Coordination(b), tilefence.TileServerConfig{Logger: log})
	require.NoError(t, s.Own(plaza, harbour))
	start(t, s)
	await(t, s, plaza)
	await(t, s, harbour)
	becomes(t, s)
	line.Set(faultinject.Cut)
	becomes(t, s, "TileServer: ticks: tiles are frozen", "(2, such as")
	w := httptest.NewRecorder()
	tilefence.LiveHandler(s).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/livez", nil))
	require.Equal(t, http.StatusOK, w.Code, "a liveness probe would kill the only copy")
	waittest.Until(t, func() bool { return text.count("level=WARN msg=\"tiles are frozen") == 1 }, 10*time.Second,
		10*time.Millisecond)
	line.Set(faultinject.Flowing)
	becomes(t, s)
	waittest.Until(t, func() bool { return text.count("no longer: tiles are frozen") == 1 }, 10*time.Second,
		10*time.Millisecond)
	assert.Equal(t, 1, text.count("level=WARN msg=\"tiles are frozen"))
}

// TestAnAuthorityThatHangsIsSaid: a tile whose owner is gone has a follower that cannot take it.
func TestAnAuthorityThatHangsIsSaid(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	s := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, s.Own(plaza))
	first := start(t, s)
	await(t, s, plaza)
	hang := &hanging{Authority: b.Authority, free: make(chan struct{})}
	b.Authority = hang
	log, text := logged()
	follower := tileServer(t, b, tilefence.TileServerConfig{Logger: log})
	require.NoError(t, follower.Follow(plaza))
	start(t, follower)
	follows(t, follower, plaza)
	becomes(t, follower)
	require.NoError(t, first.stop())
	becomes(t, follower, "TileServer: take-overs: the authority gives no epoch (1, such as "+plaza.String())
	waittest.Until(t, func() bool { return text.count("the authority gives no epoch") == 1 }, 10*time.Second,
		10*time.Millisecond)
	close(hang.free)
	await(t, follower, plaza)
	becomes(t, follower)
}

// hanging is an authority that grants nothing until it is free.
type hanging struct {
	fence.Authority
	free chan struct{}
}

func (h *hanging) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	select {
	case <-h.free:
		return h.Authority.Promote(ctx, c)
	case <-ctx.Done():
		return fence.Grant{}, &fence.StoreError{Op: "promote", Outcome: fence.ErrNotApplied, Err: ctx.Err()}
	}
}

// TestRulesThatFailAreSaid: and those that are too slow.
func TestRulesThatFailAreSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rules tile.Rules
		want  string
	}{
		"panic": {&noisy{tick: func() { panic("full moon") }}, "TileServer: rules: the game's rules fail"},
		"slow":  {&noisy{tick: func() { time.Sleep(100 * time.Millisecond) }}, "TileServer: ticks: ticks are missed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			cfg := &tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}}
			cfg.Host.Tile.TickInterval = 20 * time.Millisecond
			s, err := tilefence.NewTileServer(l.Addr().String(), embedded(t),
				func(fence.TileID) (tile.Rules, error) { return c.rules, nil }, cfg)
			require.NoError(t, err)
			require.NoError(t, s.Own(plaza))
			start(t, s)
			becomes(t, s, c.want)
		})
	}
}

// TestATileThatDoesNotBeginIsSaid: why, in the log, in the health and to callers that wait for it.
func TestATileThatDoesNotBeginIsSaid(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		make func(fence.TileID) (tile.Rules, error)
		want string
	}{
		"error": {func(fence.TileID) (tile.Rules, error) { return nil, errors.New("no map file") }, "no map file"},
		"panic": {func(fence.TileID) (tile.Rules, error) { panic("no sprites") }, "no sprites"},
		"nil":   {func(fence.TileID) (tile.Rules, error) { return nil, nil }, "want the game's rules"},
		"large": {func(fence.TileID) (tile.Rules, error) { return &stout{}, nil }, "at most 16777216"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := listen(t)
			logger, said := logged()
			s, err := tilefence.NewTileServer(l.Addr().String(), embedded(t), c.make,
				&tilefence.TileServerConfig{Web: tilefence.Web{Listener: l}, Logger: logger})
			require.NoError(t, err)
			require.NoError(t, s.Own(plaza))
			start(t, s)
			becomes(t, s, "TileServer: take-overs: tiles are not served", c.want)
			for range 100 { // also between two attempts
				status, _ := health(t, s)
				require.Equal(t, http.StatusServiceUnavailable, status)
				time.Sleep(10 * time.Millisecond)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			require.ErrorContains(t, s.Host().Await(ctx, plaza), c.want)
			assert.Positive(t, said.count("the tile's processor ended; it begins again"))
		})
	}
}

// stout has a state that fits no snapshot.
type stout struct{ bell }

func (*stout) Snapshot() ([]byte, error) { return make([]byte, 20<<20), nil }

// noisy does something at each tick.
type noisy struct {
	bell
	tick func()
}

func (n *noisy) Resolve(t fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	n.tick()
	return n.bell.Resolve(t, intents)
}

// TestABridgeThatCannotReadIsSaid, and a relay, and that a process is as well as its worst server.
func TestABridgeThatCannotReadIsSaid(t *testing.T) {
	t.Parallel()
	line, b := faultinject.New(), embedded(t)
	s := tileServer(t, b, tilefence.TileServerConfig{})
	require.NoError(t, s.Own(plaza))
	start(t, s)
	await(t, s, plaza)
	log, text := logged()
	bridge, err := tilefence.NewBridgeServer(line.Coordination(b), &tilefence.BridgeServerConfig{Logger: log})
	require.NoError(t, err)
	start(t, bridge)
	becomes(t, bridge)
	line.Set(faultinject.Cut)
	becomes(t, bridge, "BridgeServer: delivery: the coordination store is not read")
	status, _ := health(t, s, bridge)
	assert.Equal(t, http.StatusServiceUnavailable, status)
	waittest.Until(t, func() bool { return text.count("the coordination store is not read") > 0 }, 10*time.Second,
		10*time.Millisecond)
	line.Set(faultinject.Flowing)
	becomes(t, bridge)
}

// TestTilesThatGoBackAndForthAreSaid: a rival takes a tile from its owner again and again. Health and log say so.
func TestTilesThatGoBackAndForthAreSaid(t *testing.T) {
	t.Parallel()
	b := embedded(t)
	log, text := logged()
	first := tileServer(t, b, tilefence.TileServerConfig{Logger: log})
	second := tileServer(t, b, tilefence.TileServerConfig{})
	for _, s := range []*tilefence.TileServer{first, second} {
		require.NoError(t, s.Own(plaza))
		start(t, s)
	}
	waittest.Until(t, func() bool {
		return state(first, plaza) == tile.Serving || state(second, plaza) == tile.Serving
	}, 20*time.Second, 5*time.Millisecond)
	owner := first
	if state(second, plaza) == tile.Serving {
		owner = second
	}
	for lost := 0; lost < 3; {
		rival := second
		if owner == second {
			rival = first
		}
		follows(t, rival, plaza)
		require.NoError(t, rival.Host().TakeOver(plaza))
		follows(t, owner, plaza)
		if owner == first {
			lost++
		}
		owner = rival
	}
	becomes(t, first, "TileServer: take-overs: tiles go back and forth")
	waittest.Until(t, func() bool { return text.count("level=WARN msg=\"tiles go back and forth") == 1 },
		20*time.Second, 20*time.Millisecond)
}

// TestAPlayerCannotMakeAGatewayIll: intents for a tile that no server runs are the player's mistake.
func TestAPlayerCannotMakeAGatewayIll(t *testing.T) {
	t.Parallel()
	l := listen(t)
	g, err := tilefence.NewGatewayServer(l.Addr().String(), embedded(t), anybody, free,
		&tilefence.GatewayServerConfig{Web: tilefence.Web{Listener: l}})
	require.NoError(t, err)
	start(t, g)
	for began := time.Now(); time.Since(began) < 4*time.Second; {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := g.Gateway().Move(ctx, tile.Intent{Tile: plaza, Actor: "ann"})
		cancel()
		require.Error(t, err)
		status, problems := health(t, g)
		require.Equal(t, http.StatusOK, status, "%q", problems)
	}
}

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
	require.Equal(t, stream.Applied, outcome.Outcome)
	store.bad.Store(false)
	becomes(t, s)
	plans.bad.Store(true)
	becomes(t, s, "settings: servers of a back end would lose")
}
