package tilefence_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/checkpoint/memcheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/memfanout"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/stream/share"
	"github.com/tilefence/tilefence/tile"
)

const plaza, harbour fence.TileID = 0x85283083fffffff, 0x85283087fffffff

// bell is a game in which everybody may ring; its state counts the rings.
type bell struct{ rings byte }

func newBell(fence.TileID) (tile.Rules, error) { return &bell{}, nil }

func (b *bell) Restore(snapshot []byte) error { b.rings = append(snapshot, 0)[0]; return nil }

func (b *bell) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, out []stream.Outcome) {
	for range intents {
		events, out = append(events, []byte("ring")), append(out, stream.Applied)
	}
	return events, out
}

func (b *bell) Apply(_ fence.Tick, events [][]byte) error { b.rings += byte(len(events)); return nil }
func (b *bell) Snapshot() ([]byte, error)                 { return []byte{b.rings}, nil }

// embedded returns back ends that need no servers.
func embedded(t *testing.T) tilefence.Backends {
	t.Helper()
	store := memfence.New()
	ledger, err := sqliteledger.Open(t.Context(), filepath.Join(t.TempDir(), "ledger.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = ledger.Close() })
	return tilefence.Backends{Authority: memfence.NewAuthority(), Store: store, Log: memstream.New(store),
		Fanout: memfanout.New(), Durable: memcheckpoint.New(), Ledger: ledger,
		Workers: share.NewMemory(), Members: new(route.Group), Tiles: anyTile}
}

// anyTile lets tests make tiles up.
func anyTile(fence.TileID) error { return nil }

// listen opens a loopback port.
func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// running is a server that runs.
type running struct {
	stop  func() error // stops the server and returns what its Run did
	ended chan struct{}
}

// start runs a server until the test ends.
func start(t *testing.T, s tilefence.Server) *running {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	r := &running{ended: make(chan struct{})}
	go func() {
		defer close(r.ended)
		err = s.Run(ctx)
	}()
	r.stop = sync.OnceValue(func() error {
		cancel()
		<-r.ended
		return err
	})
	t.Cleanup(func() { require.NoError(t, r.stop()) })
	return r
}

// tileServer makes a tile server that ticks every 20 ms, at a port of its own.
func tileServer(t *testing.T, b tilefence.Backends, cfg tilefence.TileServerConfig) *tilefence.TileServer {
	t.Helper()
	l := listen(t)
	cfg.Web.Listener = l
	cfg.Host.Tile.TickInterval = 20 * time.Millisecond
	s, err := tilefence.NewTileServer(l.Addr().String(), b, newBell, &cfg)
	require.NoError(t, err)
	return s
}

// await waits until a server serves a tile.
func await(t *testing.T, s *tilefence.TileServer, id fence.TileID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, s.Host().Await(ctx, id))
}

// state is a server's part in a tile.
func state(s *tilefence.TileServer, id fence.TileID) tile.State {
	status, _ := s.Host().TileStatus(id)
	return status.State
}

// follows waits until a server follows a tile of whose owner it knows.
func follows(t *testing.T, s *tilefence.TileServer, id fence.TileID) {
	t.Helper()
	waittest.Until(t, func() bool {
		status, _ := s.Host().TileStatus(id)
		return status.State == tile.Following && status.Owner.Present()
	}, 20*time.Second, 5*time.Millisecond)
}

// journal records what happens, in order.
type record struct {
	mu     sync.Mutex
	events []string
}

func (r *record) add(event string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, event)
}

func (r *record) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.events...)
}

// redirectedTo is where an error sends its caller; empty if it is no redirect.
func redirectedTo(err error) string {
	if away, ok := errors.AsType[*tile.RedirectError](err); ok {
		return away.Contact
	}
	return ""
}
