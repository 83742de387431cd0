package redisfanout_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream/fanout"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
)

// halfOpen is a Redis server for one client, whose connections can lose their other end without a FIN, as they do when
// a host or a table of addresses on the way forgets them: what is written goes nowhere, and nothing comes.
type halfOpen struct {
	mu         sync.Mutex
	life       int // connections of an earlier one are silent
	subscribed int
}

func (h *halfOpen) dial(context.Context, string, string) (net.Conn, error) {
	near, far := net.Pipe()
	h.mu.Lock()
	life := h.life
	h.mu.Unlock()
	go h.serve(far, life)
	return near, nil
}

// forget silences the connections there are. New ones work.
func (h *halfOpen) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.life++
}

func (h *halfOpen) subscriptions() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.subscribed
}

func (h *halfOpen) serve(c net.Conn, life int) {
	defer func() { _ = c.Close() }()
	r, answers := bufio.NewReader(c), make(chan string, 100) // a pipe has no buffer of its own
	defer close(answers)
	go func() {
		for a := range answers {
			_, _ = io.WriteString(c, a) // the reader sees what goes wrong
		}
	}()
	for {
		words, err := readCommand(r)
		if err != nil {
			return
		}
		if answer := h.answer(words, life); answer != "" {
			answers <- answer
		}
	}
}

func (h *halfOpen) answer(words []string, life int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	name := strings.ToLower(words[0])
	switch {
	case life != h.life:
		return ""
	case name == "hello": // it speaks RESP2
		return "-ERR unknown command\r\n"
	case name == "ping":
		return "+PONG\r\n"
	case name == "spublish":
		return ":1\r\n"
	case name == "ssubscribe", name == "sunsubscribe":
		if name == "ssubscribe" {
			h.subscribed++
		}
		return fmt.Sprintf("*3\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n:1\r\n", len(name), name, len(words[1]), words[1])
	}
	return "+OK\r\n"
}

// readCommand reads an array of strings.
func readCommand(r *bufio.Reader) (words []string, err error) {
	for want := 1; len(words) < want; {
		line, err := r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(line[1:]))
		if err != nil {
			return nil, err
		}
		if line[0] == '*' {
			want = n
			continue
		}
		word := make([]byte, n+2)
		if _, err := io.ReadFull(r, word); err != nil {
			return nil, err
		}
		words = append(words, string(word[:n]))
	}
	return words, nil
}

// TestHalfOpen: connections whose other end has vanished without a word cost a Publish its timeout, and a subscription
// three intervals of pings, whenever they vanish; then it is in force again on a new one.
func TestHalfOpen(t *testing.T) {
	const ping, timeout = time.Second, 700 * time.Millisecond
	for _, offset := range []time.Duration{0, 1, 100 * ms, 500 * ms, 999 * ms} {
		synctest.Test(t, func(t *testing.T) {
			server := &halfOpen{}
			client := redis.NewClient(&redis.Options{Dialer: server.dial, Protocol: 2, DisableIdentity: true,
				ContextTimeoutEnabled: true, ReadTimeout: time.Minute, WriteTimeout: time.Minute, MaxRetries: -1,
				MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
			defer func() { _ = client.Close() }()
			f := open(t, client, redisfanout.Config{}.With(redisfanout.Tuning{Timeout: timeout, PingInterval: ping}))
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			stop, err := f.Subscribe(ctx, 7, func([]byte) {})
			require.NoError(t, err)
			defer stop()
			message := []fanout.Message{{Tile: 7, Data: []byte("x")}}
			_, err = f.Publish(t.Context(), message)
			require.NoError(t, err)
			time.Sleep(10*ping + offset)
			require.Zero(t, f.Stats().Disconnects)

			server.forget()
			began := time.Now()
			_, err = f.Publish(t.Context(), message)
			require.ErrorIs(t, err, fence.ErrUnknownOutcome)
			require.LessOrEqual(t, time.Since(began), timeout)
			for f.Stats().Disconnects == 0 && time.Since(began) < 5*ping {
				time.Sleep(ms)
			}
			require.LessOrEqual(t, time.Since(began), 3*ping+ms, "%v after a ping", offset)
			require.Greater(t, time.Since(began), 2*ping-ms, "%v after a ping", offset)
			time.Sleep(200 * ms) // the delay before the first attempt, 50 ms and its jitter
			require.Equal(t, 2, server.subscriptions())
			stats := f.Stats()
			require.Equal(t, 1, stats.InForce)
			require.Equal(t, uint64(1), stats.Disconnects)
			_, err = f.Publish(t.Context(), message)
			require.NoError(t, err)
		})
	}
}

// onMasters adds up what a function finds on each master.
func onMasters(t testing.TB, client *redis.ClusterClient, f func(context.Context, *redis.Client) (int64, error)) int {
	var sum atomic.Int64
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
		n, err := f(ctx, node)
		sum.Add(n)
		return err
	}))
	return int(sum.Load())
}

// subscribed is how many channels have a subscriber.
func subscribed(ctx context.Context, node *redis.Client) (int64, error) {
	all, err := node.PubSubShardChannels(ctx, "{tile:*").Result()
	return int64(len(all)), err
}

// subscribeCommands is how many SSUBSCRIBE commands a node has had.
func subscribeCommands(ctx context.Context, node *redis.Client) (int64, error) {
	info, err := node.Info(ctx, "commandstats").Result()
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(info, "cmdstat_ssubscribe:calls=")
	if !found {
		return 0, nil
	}
	n, _, _ := strings.Cut(rest, ",")
	return strconv.ParseInt(n, 10, 64)
}

// BenchmarkResubscribe is of a relay that watches 10,000 tiles: the time until all of its subscriptions are in force
// again, with the commands that takes. connections: every connection is lost, and no node. node: one of three nodes is
// killed, with a third of the tiles; the time counts from when its slots have a new home, which is the cluster's own
// affair (a replica takes node timeout and election).
func BenchmarkResubscribe(b *testing.B) {
	b.Run("connections", func(b *testing.B) {
		addrs := stacktest.Fanout(b)
		client := newClient(b, addrs)
		watchMany(b, client, open(b, newClient(b, addrs), nil))
		before, rounds := onMasters(b, client, subscribeCommands), 0
		for b.Loop() {
			onMasters(b, client, func(ctx context.Context, node *redis.Client) (int64, error) {
				return node.Do(ctx, "client", "kill", "type", "pubsub").Int64()
			})
			waittest.Until(b, func() bool { return onMasters(b, client, subscribed) == manyTiles }, time.Minute, 5*ms)
			rounds++
		}
		b.ReportMetric(float64(b.Elapsed().Milliseconds())/float64(rounds), "ms/restored")
		commands := onMasters(b, client, subscribeCommands) - before
		b.ReportMetric(float64(commands)/float64(rounds*manyTiles), "commands/tile")
	})
	b.Run("node", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			took = append(took, loseNode(b))
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)/2].Milliseconds()), "ms/restored")
	})
}

const (
	manyTiles = 10_000
	ms        = time.Millisecond
)

// watchMany subscribes to 10,000 tiles and waits until the subscriptions are in force.
func watchMany(b *testing.B, client *redis.ClusterClient, f *redisfanout.Fanout) {
	b.Helper()
	seen := map[fence.TileID]bool{}
	for len(seen) < manyTiles {
		tile := anyTile()
		if seen[tile] {
			continue
		}
		seen[tile] = true
		stop, err := f.Subscribe(b.Context(), tile, func([]byte) {})
		require.NoError(b, err)
		b.Cleanup(stop)
	}
	waittest.Until(b, func() bool { return onMasters(b, client, subscribed) == manyTiles }, time.Minute, 10*ms)
}

// loseNode kills one of the nodes of a cluster of its own, and gives how long it takes from when its slots have a new
// home.
func loseNode(b *testing.B) time.Duration {
	c := startCluster(b)
	watchMany(b, newClient(b, c.stack.FanoutAddrs), open(b, newClient(b, c.stack.FanoutAddrs), nil))
	first, last := c.slotsOf(2)
	require.NoError(b, c.process(2).Signal(os.Kill))
	<-c.process(2).Exited()
	c.inherit(first, last)
	began := time.Now()
	waittest.Until(b, func() bool {
		var all int64
		for _, node := range c.nodes[:2] {
			n, err := subscribed(b.Context(), node)
			require.NoError(b, err)
			all += n
		}
		return all == manyTiles
	}, time.Minute, 5*ms)
	return time.Since(began)
}
