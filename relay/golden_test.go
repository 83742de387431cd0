package relay

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// TestStoredBytesAreSent: what a watcher gets is the stored entry with its private part left out, in both encodings,
// prepared once for all watchers.
func TestStoredBytesAreSent(t *testing.T) {
	file, err := os.ReadFile("testdata/messages.json")
	require.NoError(t, err)
	var golden []struct {
		Name, Stored, Binary string
		JSON                 json.RawMessage
	}
	require.NoError(t, json.Unmarshal(file, &golden))
	checked := 0
	for _, g := range golden {
		if g.Stored == "" {
			continue
		}
		checked++
		stored, err := hex.DecodeString(g.Stored)
		require.NoError(t, err)
		e, err := fence.DecodeEntry(stored)
		require.NoError(t, err)

		cfg := &Config{Limits: Limits{TailFrames: 9, TailBytes: 999}, Hooks: Hooks{}}
		h := newHub(e.Tile, cfg, &counters{}, nil)
		h.view.loaded, h.view.at, h.view.proven = true, e.Prev, e.Epoch
		var areas fence.AreaSet
		if strings.Contains(g.Name, "without") {
			areas = fence.Areas(9)
		}
		var outs []*queue
		for _, encoding := range []relaypb.Encoding{relaypb.Binary, relaypb.Binary, relaypb.JSON} {
			q := &queue{}
			q.init(9, 999)
			h.subs = append(h.subs, &subscription{h: h, out: q, form: form(encoding), areas: areas, live: true})
			outs = append(outs, q)
		}
		h.deliver(stored)

		binary, text := payloadOf(t, outs[0]), payloadOf(t, outs[2])
		require.Equal(t, g.Binary, hex.EncodeToString(binary), g.Name)
		require.JSONEq(t, string(g.JSON), string(text), g.Name)
		require.Same(t, &binary[0], &payloadOf(t, outs[1])[0], "prepared once for all watchers")
		require.Equal(t, areas.All(), bytes.HasSuffix(binary, e.Payload), "the payload as it is stored")
		if len(e.Private) > 0 {
			require.NotContains(t, string(binary), string(e.Private), "outcomes and claims are for owners")
		}
	}
	require.Equal(t, 4, checked)
}

// payloadOf is the payload of the one WebSocket frame in a queue; it is shorter than 64 KiB.
func payloadOf(t *testing.T, q *queue) []byte {
	require.Len(t, q.frames, 1)
	frame := q.frames[0]
	if frame[1] == 126 {
		return frame[4:]
	}
	return frame[2:]
}
