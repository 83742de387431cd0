package relay

import (
	"math"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// envSilent is how many clients TestSilentClientsWithDifferentPositions has: 480 for the attack at its full size.
const envSilent = "TILEFENCE_SILENT_CLIENTS"

// TestSilentClientsWithDifferentPositions: each client says that it holds another position of a long tail, so that each
// would have an answer of its own, and then reads nothing. The relay's memory stays within its limits.
func TestSilentClientsWithDifferentPositions(t *testing.T) {
	clients, entries, limit, watched := 48, 200, 2<<20, 2*time.Second
	if text := os.Getenv(envSilent); text != "" {
		var err error
		clients, err = strconv.Atoi(text)
		require.NoError(t, err)
		entries, limit, watched = 500, 0, 20*time.Second // the default limit
	}
	for name, protocol := range map[string]string{"binary": relaypb.Subprotocol, "JSON": relaypb.SubprotocolJSON} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			cfg := still()
			if cfg.RelaySyncBytes = limit; limit != 0 {
				cfg.syncStall = 50 * time.Millisecond // the honest client has not as much room beside them
			}
			s := w.serve(cfg)
			o := w.claim(tileA, 1)
			o.snapshot()
			var held []fence.Position
			const entry = 6 << 10
			for range entries {
				o.appendPayload(make([]byte, entry), false)
				held = append(held, o.at)
			}
			s.watch(t, nil, tileA).reaches(o)
			before := heap()
			for i := range clients {
				c := s.raw(t, protocol)
				at := held[i*len(held)/clients]
				m := &relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{Subscribe: &relaypb.Subscribe{
					Held: []*relaypb.Held{{Tile: tileA.String(), Position: relaypb.FromPosition(at)}}}}}
				if protocol == relaypb.Subprotocol {
					send(t, c, m)
					continue
				}
				text, err := protojson.Marshal(m)
				require.NoError(t, err)
				require.NoError(t, c.Write(t.Context(), websocket.MessageText, text))
			}
			most := heap()
			for began := time.Now(); time.Since(began) < watched; time.Sleep(100 * time.Millisecond) {
				most = max(most, heap())
			}
			t.Logf("%d clients: heap %d MiB before, at most %d MiB; an answer of its own for each would be %d MiB",
				clients, before>>20, most>>20, clients*entry*entries/2>>20)
			allowed := before + 3*int64(s.cfg.RelaySyncBytes) + int64(clients)<<16 + 8<<20
			assert.LessOrEqual(t, most, allowed)
			require.Zero(t, s.Stats().BadMessages)
			require.GreaterOrEqual(t, s.Stats().SyncsOut, uint64(3), "the silent clients are served")
			honest := s.watch(t, nil, tileA)
			o.tickOn(1)
			honest.reaches(o)
		})
	}
}

// heap is what is in use once garbage is collected: the least of three looks, because answers are made meanwhile, and
// what they leave behind says nothing.
func heap() int64 {
	least := int64(math.MaxInt64)
	for range 3 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, int64(m.HeapInuse))
	}
	return least
}
