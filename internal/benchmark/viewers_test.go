//go:build linux

package benchmark

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/internal/relaypb"
)

// view has clients join relays, for each line of its input, which names the relays' addresses, separated by commas:
// AtOnce of them, dealt to tiles and relays, within a second. When it has said that all have joined, they leave, and it
// says how many of them were sent what is no history.
func (p *part) view(context.Context) error {
	runtime.GOMAXPROCS(2) // of which crowd.Storm needs one
	p.say(nodeEvent{What: "ready"})
	for order := bufio.NewScanner(os.Stdin); order.Scan(); {
		if err := p.viewers(strings.Split(order.Text(), ",")); err != nil {
			return err
		}
	}
	return nil
}

func (p *part) viewers(relays []string) error {
	joins := make([]crowd.Join, p.AtOnce)
	for i := range joins {
		joins[i].Addr, joins[i].Path = relays[(i/len(p.Tiles))%len(relays)], subscribeTo(p.Tiles[i%len(p.Tiles)])
	}
	var syncs [][]byte // of one client in ten, to be verified when the time has been taken
	used := processorTime()
	leave, err := crowd.Storm(joins, time.Second, relaypb.Subprotocol, func(i int, sync []byte) bool {
		if len(sync) > 0 && sync[0] != ofATile { // a heartbeat
			return false
		}
		if i%10 == 0 {
			syncs = append(syncs, bytes.Clone(sync))
		}
		return true
	})
	if err != nil {
		return err
	}
	used = processorTime() - used
	took := make([]time.Duration, len(joins))
	for i := range joins {
		took[i] = joins[i].Took
	}
	slices.Sort(took)
	at := func(percent int) int64 { return took[len(took)*percent/100].Microseconds() }
	p.say(nodeEvent{What: "joined", Counts: counts{"p50-us": at(50), "p95-us": at(95), "p99-us": at(99),
		"cpu-us": used.Microseconds()}})
	leave()
	torn := int64(0)
	for _, message := range syncs {
		if err := checkSync(message); err != nil {
			torn++
			fmt.Fprintln(os.Stderr, err)
		}
	}
	p.say(nodeEvent{What: "left", Counts: counts{"torn": torn}})
	return nil
}

// visit sends viewers to servers and returns what they measured. joined, if any, is called when all have joined, before
// they leave.
func (p *process) visit(tb testing.TB, addrs string, joined func()) counts {
	tb.Helper()
	_, err := fmt.Fprintln(p.orders, addrs)
	require.NoError(tb, err)
	measured := p.await(tb, "joined").Counts
	if joined != nil {
		joined()
	}
	require.Zero(tb, p.await(tb, "left").Counts["torn"], "clients were sent what is no history")
	return measured
}

// ofATile begins a message of a tile: the tag of ServerMessage.tile, which is the first field.
const ofATile = 1<<3 | 2

// subscribeTo is the path of a handshake with which a client subscribes to a tile.
func subscribeTo(tile fence.TileID) string {
	path, _ := relaypb.SubscribeURL("/", &relaypb.Subscribe{Tiles: []string{tile.String()}}) // one tile is not too long
	return path
}

// checkSync verifies a client's first message: a snapshot, and batches that follow it up to its position.
func checkSync(message []byte) error {
	var m relaypb.ServerMessage
	if err := proto.Unmarshal(message, &m); err != nil {
		return err
	}
	tile, err := fence.ParseTileID(m.GetTile())
	if err != nil {
		return err
	}
	s := m.GetSync()
	at := s.GetFrom().Fence()
	for _, f := range s.GetTail() {
		e := f.Entry(tile)
		if err := e.Verify(); err != nil || e.Prev != at {
			return fmt.Errorf("tile %s: %s does not follow %s", tile, e.Position, at)
		}
		at = e.Position
	}
	if s == nil || at.IsZero() || at != s.GetPosition().Fence() || s.GetSum() != fence.Checksum(s.GetBlob()) {
		return fmt.Errorf("tile %s: the first message is no whole Sync: %.100s", tile, m.String())
	}
	return nil
}
