package benchmark

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/benchmark/crowd"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// view has clients join relays, for each line of its input, which names the relays' addresses, separated by commas:
// AtOnce of them, dealt to tiles and relays, within a second. They leave when all have joined.
func (p *part) view(ctx context.Context) error {
	p.say(nodeEvent{What: "ready"})
	for order := bufio.NewScanner(os.Stdin); order.Scan(); {
		joined, err := p.viewers(ctx, strings.Split(order.Text(), ","))
		if err != nil {
			return err
		}
		p.say(nodeEvent{What: "joined", Counts: joined})
	}
	return nil
}

func (p *part) viewers(ctx context.Context, relays []string) (counts, error) {
	var mu sync.Mutex
	var syncs [][]byte // of one client in ten, to be verified when the time has been taken
	clients := make([]*crowd.Client, p.AtOnce)
	took, err := crowd.Gather(p.AtOnce, time.Second, func(i int) (err error) {
		at := *p
		at.Relay = relays[(i/len(p.Tiles))%len(relays)]
		tile := p.Tiles[i%len(p.Tiles)]
		var sync []byte
		clients[i], sync, err = at.viewOne(ctx, tile)
		if err == nil && i%10 == 0 {
			mu.Lock()
			defer mu.Unlock()
			syncs = append(syncs, bytes.Clone(sync))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	torn := int64(0)
	for _, message := range syncs {
		if err := checkSync(message); err != nil {
			torn++
			fmt.Fprintln(os.Stderr, err)
		}
	}
	for _, c := range clients {
		c.Close()
	}
	slices.Sort(took)
	at := func(percent int) int64 { return took[len(took)*percent/100].Microseconds() }
	return counts{"p50-us": at(50), "p95-us": at(95), "p99-us": at(99), "torn": torn}, nil
}

// viewOne connects, subscribes and reads the Sync.
func (p *part) viewOne(ctx context.Context, tile fence.TileID) (*crowd.Client, []byte, error) {
	subscribe, err := proto.Marshal(&relaypb.ClientMessage{Body: &relaypb.ClientMessage_Subscribe{
		Subscribe: &relaypb.Subscribe{Tiles: []string{tile.String()}}}})
	if err != nil {
		return nil, nil, err
	}
	c, err := crowd.Dial(ctx, p.Relay, "/", relaypb.Subprotocol)
	if err != nil {
		return nil, nil, err
	}
	if err := c.Send(false, subscribe); err != nil {
		return c, nil, err
	}
	sync, err := c.Next()
	return c, sync, err
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
