package redisfence_test

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
)

// TestNew: what a store does not take.
func TestNew(t *testing.T) {
	t.Parallel()
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = client.Close() }()
	for _, test := range []struct {
		field string
		cfg   redisfence.Config
	}{
		{"TTL", redisfence.Config{TTL: time.Millisecond}},
		{"ConfirmTimeout", redisfence.Config{ConfirmTimeout: time.Hour}},
		{"MinReplicas", redisfence.Config{MinReplicas: -1}},
		{"MinReplicas", redisfence.Config{MinReplicas: 1, AllowNoReplicas: true}},
	} {
		_, err := redisfence.New(client, &test.cfg)
		var argument *fence.ArgumentError
		require.ErrorAs(t, err, &argument)
		require.Equal(t, test.field, argument.Field)
	}
}

// TestSlowTopologyReload: Load warns of a client that would notice a failover late, as go-redis does by default.
func TestSlowTopologyReload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		slow bool
		set  func(*redis.ClusterOptions)
	}{
		{"as Options has it", false, func(*redis.ClusterOptions) {}},
		{"faster", false, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 100 * time.Millisecond }},
		{"the client's default", true, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 0 }},
		{"slower", true, func(o *redis.ClusterOptions) { o.ClusterStateReloadInterval = 10 * time.Second }},
	} {
		options := redisfence.Options("127.0.0.1:1")
		options.DialerRetries = 1
		test.set(options)
		client := redis.NewClusterClient(options)
		var log strings.Builder
		store, err := redisfence.New(client, &redisfence.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		require.NoError(t, err)
		require.Error(t, store.Load(t.Context()), "no server listens")
		require.Equal(t, test.slow, strings.Contains(log.String(), "ClusterStateReloadInterval"), "%s: %s", test.name,
			log.String())
		require.NoError(t, client.Close())
	}
}

// TestUnreachable: what could not be sent was not applied, by whatever way it would have gone.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	for name, client := range map[string]redis.UniversalClient{
		"cluster": redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}, DialerRetries: 1,
			ContextTimeoutEnabled: true}),
		"node": redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", DialerRetries: 1, ContextTimeoutEnabled: true}),
	} {
		t.Run(name, func(t *testing.T) {
			defer func() { _ = client.Close() }()
			store, err := redisfence.New(client, nil)
			require.NoError(t, err)
			var wg sync.WaitGroup
			for range 10 {
				wg.Go(func() {
					for _, replicas := range []int{0, 1, fence.AllReplicas} {
						c := founding(newTile())
						c.Replicas = replicas
						_, err := store.Commit(t.Context(), c)
						checkIs(t, err, fence.ErrNotApplied)
					}
				})
			}
			wg.Wait()
		})
	}
}

// TestSentOnce: a server takes a call and is gone before it answers. Its outcome is unknown, and
// the client library has not hidden that by trying again where no server listens.
func TestSentOnce(t *testing.T) {
	t.Parallel()
	for name, cfg := range map[string]redisfence.Config{"pipelined": {}, "one-by-one": {Unpipelined: true}} {
		for _, replicas := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/%d", name, replicas), func(t *testing.T) {
				t.Parallel()
				took := make(chan struct{})
				client := redis.NewClient(&redis.Options{Addr: vanishing(t, took), DialerRetries: 1, Protocol: 2})
				defer func() { _ = client.Close() }()
				store, err := redisfence.New(client, &cfg)
				require.NoError(t, err)
				c := founding(newTile())
				c.Replicas = replicas
				_, err = store.Commit(t.Context(), c)
				select {
				case <-took:
				default:
					require.Fail(t, "the call was not sent", "%v", err)
				}
				require.ErrorIs(t, err, fence.ErrUnknownOutcome)
			})
		}
	}
}

// vanishing is the address of a server that says OK to everything up to a function call. With that it is
// gone.
func vanishing(t *testing.T, took chan struct{}) (addr string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go func() {
		defer listener.Close()
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			name := 0 // lines to the name of a command: *<elements>, $<length>, <name>
			for lines := bufio.NewScanner(conn); lines.Scan(); name-- {
				switch {
				case strings.HasPrefix(lines.Text(), "*"):
					name = 2
				case name != 0:
				case strings.EqualFold(lines.Text(), "fcall"):
					close(took)
					listener.Close()
					conn.Close()
					return
				case strings.EqualFold(lines.Text(), "hello"):
					_, _ = conn.Write([]byte("-ERR unknown command\r\n"))
				default:
					_, _ = conn.Write([]byte("+OK\r\n"))
				}
			}
			conn.Close()
		}
	}()
	return listener.Addr().String()
}

func checkIs(t *testing.T, err, want error) {
	if !errors.Is(err, want) {
		t.Errorf("%v is no %v", err, want)
	}
}

// TestWantsDiffer: calls that ask for different numbers of replicas are confirmed together, and each is
// judged by its own number.
func TestWantsDiffer(t *testing.T) {
	t.Parallel()
	store, client := newStore(t, &redisfence.Config{ConfirmTimeout: 300 * time.Millisecond})
	master, err := client.MasterForKey(t.Context(), fence.KeysOf(newTile()).Owner)
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 60 {
		c := founding(newTile())
		for {
			node, err := client.MasterForKey(t.Context(), fence.KeysOf(c.Tile).Owner)
			require.NoError(t, err)
			if node == master {
				break
			}
			c = founding(newTile())
		}
		c.Replicas = []int{1, fence.AllReplicas, 3}[i%3]
		wg.Go(func() {
			r, err := store.Commit(t.Context(), c)
			var unconfirmed *fence.UnconfirmedError
			switch {
			case c.Replicas != 3 && (err != nil || r.Replicas != 1):
				t.Errorf("%d replicas wanted of 1: %+v, %v", c.Replicas, r, err)
			case c.Replicas == 3 && (!errors.As(err, &unconfirmed) || unconfirmed.Want != 3 ||
				unconfirmed.Receipt.Replicas != 1):
				t.Errorf("3 replicas wanted of 1: %+v, %v", r, err)
			}
		})
	}
	wg.Wait()
}

// TestReplicasAreAskedWhatTheyHave: they report that by themselves once a second, and a tile that something crosses
// asks at each of its ticks.
func TestReplicasAreAskedWhatTheyHave(t *testing.T) {
	t.Parallel()
	store, _ := newStore(t, nil)
	c := founding(newTile())
	_, err := store.Commit(t.Context(), c)
	require.NoError(t, err)
	began := time.Now()
	const commits = 10
	for range commits {
		c = fence.Commit{Tile: c.Tile, Epoch: 1, Contact: c.Contact, Prev: c.Next(), Tick: c.Tick + 1,
			Payload: []byte("more")}
		_, err = store.Commit(t.Context(), c)
		require.NoError(t, err)
		require.NoError(t, store.Confirm(t.Context(), c.Tile, c.Next()))
	}
	require.Less(t, time.Since(began), commits*time.Second/3, "replicas were not asked")
}
