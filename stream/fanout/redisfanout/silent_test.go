package redisfanout_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
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
			f := open(t, client, redisfanout.Config{Timeout: timeout}.With(redisfanout.Tuning{PingInterval: ping}))
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
