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
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// view has clients join relays, for each line of its input, which names the relays' addresses, separated by commas:
// AtOnce of them, dealt to tiles and relays, within a second. They leave when all have joined.
func (p *part) view(context.Context) error {
	runtime.GOMAXPROCS(1) // for one loop
	p.say(nodeEvent{What: "ready"})
	for order := bufio.NewScanner(os.Stdin); order.Scan(); {
		joined, err := p.viewers(strings.Split(order.Text(), ","))
		if err != nil {
			return err
		}
		p.say(nodeEvent{What: "joined", Counts: joined})
	}
	return nil
}

func (p *part) viewers(relays []string) (counts, error) {
	joins := make([]crowd.Join, p.AtOnce)
	for i := range joins {
		message, err := subscribeTo(p.Tiles[i%len(p.Tiles)])
		if err != nil {
			return nil, err
		}
		joins[i].Addr, joins[i].Message = relays[(i/len(p.Tiles))%len(relays)], message
	}
	var syncs [][]byte // of one client in ten, to be verified when the time has been taken
	used := processorTime()
	leave, err := crowd.Storm(joins, time.Second, relaypb.Subprotocol, func(i int, sync []byte) {
		if i%10 == 0 {
			syncs = append(syncs, bytes.Clone(sync))
		}
	})
	if err != nil {
		return nil, err
	}
	used = processorTime() - used
	torn := int64(0)
	for _, message := range syncs {
		if err := checkSync(message); err != nil {
			torn++
			fmt.Fprintln(os.Stderr, err)
		}
	}
	leave()
	took := make([]time.Duration, len(joins))
	for i := range joins {
		took[i] = joins[i].Took
	}
	slices.Sort(took)
	at := func(percent int) int64 { return took[len(took)*percent/100].Microseconds() }
	return counts{"p50-us": at(50), "p95-us": at(95), "p99-us": at(99), "torn": torn,
		"cpu-us": used.Microseconds()}, nil
}

// subscribeTo is the message with which a client subscribes to a tile.
func subscribeTo(tile fence.TileID) ([]byte, error) {
	return proto.Marshal(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Tiles: []string{tile.String()}}}})
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
