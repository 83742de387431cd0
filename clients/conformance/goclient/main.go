// Command goclient is the adapter with which the conformance kit checks the clients in Go: relayclient and gatewayws.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func main() {
	a := &adapter{}
	show("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if err := a.do(strings.Fields(lines.Text())); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", lines.Text(), err)
		}
	}
}

// adapter does what the kit says. Tiles named before the connection are its first subscription.
type adapter struct {
	relay *relayclient.Client
	tiles []fence.TileID
	parts map[fence.TileID][]fence.Area

	mu      sync.Mutex
	token   string
	gateway *gatewayws.Client
	url     string
}

func show(format string, args ...any) { fmt.Printf(format+"\n", args...) }

func (a *adapter) do(words []string) error {
	ctx := context.Background()
	switch words[0] {
	case "token":
		a.mu.Lock()
		defer a.mu.Unlock()
		a.token = words[1]
	case "relay":
		return a.dialRelay(words[1])
	case "join":
		id := tileOf(words[1])
		switch {
		case len(words) > 2 && a.relay != nil:
			return a.relay.Watch(ctx, id, areasOf(words[3])...)
		case len(words) > 2:
			a.parts = map[fence.TileID][]fence.Area{id: areasOf(words[3])}
		case a.relay != nil:
			return a.relay.Subscribe(ctx, id)
		default:
			a.tiles = append(a.tiles, id)
		}
	case "watch":
		return a.relay.Watch(ctx, tileOf(words[1]), areasOf(words[2])...)
	case "leave":
		return a.relay.Unsubscribe(ctx, tileOf(words[1]))
	case "gateway":
		a.url = words[1]
		_, err := a.connected()
		return err
	case "move":
		go a.play(words[1], gatewayws.Request{Tile: tileOf(words[2]), Kind: admission.Move, Body: bytesOf(words[3])})
	case "act":
		cost, err := strconv.ParseInt(words[5], 10, 64)
		go a.play(words[1], gatewayws.Request{Tile: tileOf(words[2]), Kind: admission.Act, Action: words[3],
			Asset: words[4], Cost: admission.Amount(cost), Body: bytesOf(words[6])})
		return err
	}
	return nil
}

func tileOf(s string) fence.TileID {
	id, err := fence.ParseTileID(s)
	if err != nil {
		panic(err)
	}
	return id
}

func bytesOf(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

func areasOf(s string) []fence.Area {
	var all []fence.Area
	for a := range strings.SplitSeq(s, ",") {
		n, err := strconv.ParseUint(a, 10, 8)
		if err != nil {
			panic(err)
		}
		all = append(all, fence.Area(n))
	}
	return all
}

func (a *adapter) dialRelay(url string) (err error) {
	cfg := &relayclient.Config{Tiles: a.tiles, Reconnect: true, Sync: showState, Frame: showBatch,
		Refused:      func(r relayclient.Refusal) { show("error %s %s", r.Code, r.Tile) },
		Disconnected: func(err error) { show("lost %v", err) }}
	if a.token != "" {
		cfg.Token = func(context.Context) (string, error) {
			a.mu.Lock()
			defer a.mu.Unlock()
			return a.token, nil
		}
	}
	if a.relay, err = relayclient.Dial(context.Background(), url, cfg); err != nil {
		show("ended %v", err)
		return err
	}
	for id, areas := range a.parts {
		err = a.relay.Watch(context.Background(), id, areas...)
	}
	go func() {
		<-a.relay.Done()
		show("ended %v", a.relay.Err())
	}()
	return err
}

func showState(s relayclient.Sync) {
	word := "state"
	if s.Opens {
		word = "open"
	}
	line := fmt.Sprintf("%s %s", word, s.Tile)
	if !s.Divided {
		show("%s 0:%x", line, s.Snapshot.Blob)
		return
	}
	for p := range fence.Parts(s.Snapshot.Blob) {
		line += fmt.Sprintf(" %d:%x", p.Area, p.Content)
	}
	show("%s", line)
}

func showBatch(e fence.Entry) {
	batch, err := stream.DecodeBatch(&e)
	if err != nil {
		show("trouble %v", err)
		return
	}
	line := fmt.Sprintf("batch %s", e.Tile)
	for i, event := range batch.Events {
		var area fence.Area
		if len(batch.Areas) > 0 {
			area = batch.Areas[i]
		}
		line += fmt.Sprintf(" %d:%x", area, event)
	}
	show("%s", line)
}

// connected is the connection to the gateway, a new one if the last has ended.
func (a *adapter) connected() (*gatewayws.Client, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.gateway != nil {
		select {
		case <-a.gateway.Done():
		default:
			return a.gateway, nil
		}
	}
	cfg := &gatewayws.DialConfig{Told: func(m []byte) { show("told %x", m) }}
	if a.token != "" {
		cfg.Token = func(context.Context) (string, error) { return a.token, nil }
	}
	c, err := gatewayws.Dial(context.Background(), a.url, cfg)
	if err == nil {
		a.gateway = c
	}
	return c, err
}

// play sends an intent until its outcome is known: an action again and again, under the same ID, and a movement once.
func (a *adapter) play(name string, r gatewayws.Request) {
	for {
		again := 250 * time.Millisecond
		c, err := a.connected()
		var answer gatewayws.Answer
		if err == nil {
			answer, err = c.Do(context.Background(), r)
		}
		refused, is := errors.AsType[*gatewayws.Error](err)
		switch {
		case err == nil:
			crossed(name, answer.Crossing)
			show("%s", strings.TrimSpace(fmt.Sprintf("answer %s %s %s", name, answer.Outcome, answer.Why)))
			return
		case is && !refused.Retryable:
			crossed(name, refused.Crossing)
			show("answer %s error %s", name, refused.Code)
			return
		case errors.Is(err, admission.ErrDeclined): // the player, and not the intent
			show("ended %v", err)
			show("answer %s unknown", name)
			return
		case is:
			again = max(again, refused.RetryAfter)
		case r.Kind == admission.Move:
			show("answer %s unknown", name)
			return
		}
		time.Sleep(again)
	}
}

func crossed(name string, c tile.Crossing) {
	if !c.IsZero() {
		show("crossed %s %s", name, c.To)
	}
}
