package redisfence_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// TestABrokenPipeline: the server answers four of five commits of one pipeline and breaks the connection. Only of the
// fifth is the outcome unknown.
func TestABrokenPipeline(t *testing.T) {
	begun := make(chan struct{})
	var mu sync.Mutex
	calls := 0
	answer := func(name string) string {
		if name != "FCALL" {
			return "-ERR unknown command\r\n"
		}
		mu.Lock()
		calls++
		call := calls
		mu.Unlock()
		switch call {
		case 1: // the others gather meanwhile
			close(begun)
			time.Sleep(200 * time.Millisecond)
		case 6:
			time.Sleep(50 * time.Millisecond) // the answers before are on their way
			return ""
		}
		return "+ok\r\n"
	}
	s, err := redisfence.New(fakeServer(t, answer), nil)
	require.NoError(t, err)
	errs := make([]error, 6)
	commit := func(i int) {
		_, errs[i] = s.Commit(context.Background(), fence.Commit{Tile: fence.TileID(i + 1), Epoch: 1, Contact: "a:1",
			Tick: 1, Payload: []byte("x"), Prev: fence.Position{Epoch: 1, Seq: 1, Chain: 7}})
	}
	var work sync.WaitGroup
	work.Go(func() { commit(0) })
	<-begun
	for i := 1; i < len(errs); i++ {
		work.Go(func() { commit(i) })
	}
	work.Wait()
	unknown := 0
	for _, err := range errs {
		if err != nil {
			require.ErrorIs(t, err, fence.ErrUnknownOutcome)
			unknown++
		}
	}
	require.Equal(t, 1, unknown, "%v", errs)
}

// TestACutReply: a reply that breaks off in the middle is no answer, and the error says why.
func TestACutReply(t *testing.T) {
	for _, cut := range []string{"*4\r\n$5\r\nstale\r\n$2", "$10\r\nok", "*2\r\n*2\r\n$2\r\nok\r\n"} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		defer func() { _ = l.Close() }()
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go serveRESP(c, func(name string) string {
					if name == "FCALL" {
						_, _ = io.WriteString(c, cut)
						return ""
					}
					return "-ERR unknown command\r\n"
				})
			}
		}()
		client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1, DisableIdentity: true})
		defer func() { _ = client.Close() }()
		s, err := redisfence.New(client, nil)
		require.NoError(t, err)
		_, err = s.Commit(t.Context(), fence.Commit{Tile: 1, Epoch: 1, Contact: "a:1", Tick: 1, Payload: []byte("x"),
			Prev: fence.Position{Epoch: 1, Seq: 1, Chain: 7}})
		require.ErrorIs(t, err, fence.ErrUnknownOutcome, "%q", cut)
		require.True(t, errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF), "%q: %v", cut, err)
	}
}

// fakeServer returns a client of a server that gives these answers.
func fakeServer(t *testing.T, answer func(name string) string) *redis.Client {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serveRESP(c, answer)
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaxRetries: -1, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// TestSettingsThatLose: a server that would lose what a fence depends on is refused before anything is loaded.
func TestSettingsThatLose(t *testing.T) {
	const sound = "maxmemory:0\r\nmaxmemory_policy:allkeys-lru\r\naof_enabled:1\r\n"
	load := func(info string, cfg *redisfence.Config) error {
		s, err := redisfence.New(fakeServer(t, func(name string) string {
			if name == "INFO" {
				return fmt.Sprintf("$%d\r\n%s\r\n", len(info), info)
			}
			return "-ERR unknown command\r\n"
		}), cfg)
		require.NoError(t, err)
		return s.Load(t.Context())
	}
	without := strings.Replace(sound, "aof_enabled:1", "aof_enabled:0", 1)
	require.ErrorIs(t, load(without, nil), fence.ErrSetting)
	require.ErrorIs(t, load(strings.Replace(sound, "maxmemory:0", "maxmemory:1000", 1), nil), fence.ErrSetting)
	accepted := []error{load(sound, nil)}
	for _, p := range []redisfence.Persistence{redisfence.FailoverFirst, redisfence.DurableLog, redisfence.Volatile} {
		require.ErrorIs(t, load(strings.Replace(sound, "maxmemory:0", "maxmemory:1000", 1),
			&redisfence.Config{Persistence: p}), fence.ErrSetting)
		accepted = append(accepted, load(without, &redisfence.Config{Persistence: p}))
	}
	for _, err := range accepted {
		require.Error(t, err, "it has no functions")
		require.NotErrorIs(t, err, fence.ErrSetting)
	}
}

// serveRESP answers the commands of a connection by their names, and closes it at an empty answer.
func serveRESP(c net.Conn, answer func(name string) string) {
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	length := func() (n int) {
		line, err := in.ReadString('\n')
		if err == nil {
			n, _ = strconv.Atoi(strings.TrimSpace(line[1:]))
		}
		return n
	}
	for {
		var name string
		n := length()
		for i := range n {
			word := make([]byte, length()+2)
			if _, err := io.ReadFull(in, word); err != nil {
				return
			}
			if i == 0 {
				name = strings.ToUpper(strings.TrimSpace(string(word)))
			}
		}
		reply := answer(name)
		if n == 0 || reply == "" {
			return
		}
		if _, err := fmt.Fprint(c, reply); err != nil {
			return
		}
	}
}
