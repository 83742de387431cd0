package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/devstack/starttest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

const doorTile fence.TileID = 0x85283083fffffff

// asProgram makes this test binary be the program.
const asProgram = "RUN_TILESERVER=1"

func TestMain(m *testing.M) {
	if slices.Contains(os.Environ(), asProgram) {
		main()
		return
	}
	os.Exit(m.Run())
}

func program(operator string) *exec.Cmd {
	c := exec.Command(os.Args[0])
	c.Env = []string{asProgram, "TILEFENCE_OPERATOR=" + operator}
	return c
}

func TestStarts(t *testing.T) {
	t.Parallel()
	starttest.Run(t, program)
}

// TestTileServers runs two processes as production would. The second follows the tiles of the first, which hands them
// over when it is stopped; the second releases them, with everything in the durable store.
func TestTileServers(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{
		Parts: []devstack.Part{devstack.Coordination, devstack.Postgres, devstack.DynamoDB}, AppendOnly: true})
	const secret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"
	gossips := []string{freeAddress(t), freeAddress(t)}
	start := func(i int) *process {
		p := &process{contact: freeAddress(t), Cmd: program(freeAddress(t))}
		_, port, err := net.SplitHostPort(p.contact)
		require.NoError(t, err)
		_, gossip, err := net.SplitHostPort(gossips[i])
		require.NoError(t, err)
		// As where addresses are translated: no process listens at the address that it tells others.
		p.Env = append(append(p.Env, stack.Env()...), "TILEFENCE_CONTACT="+p.contact, "TILEFENCE_LISTEN=0.0.0.0:"+port,
			"TILEFENCE_GOSSIP=0.0.0.0:"+gossip, "TILEFENCE_GOSSIP_ADVERTISE="+gossips[i],
			"TILEFENCE_GOSSIP_SEEDS="+strings.Join(gossips, ","), "TILEFENCE_SECRET="+secret)
		p.Stdout, p.Stderr = &p.log, &p.log
		devstack.EndTogether(p.Cmd)
		require.NoError(t, p.Start())
		t.Cleanup(func() {
			_ = p.Process.Kill() // it has ended unless the test failed
			_ = p.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", p.contact, p.log.String())
			}
		})
		return p
	}
	key, err := hex.DecodeString(secret)
	require.NoError(t, err)
	peers, err := tilehttp.NewClient(&tilehttp.Config{Keys: tilehttp.Keys{key}})
	require.NoError(t, err)
	defer peers.Close()

	first := start(0)
	first.rings(t, peers)
	second := start(1)
	waittest.Until(t, func() bool { return strings.Contains(second.log.String(), "member joined") },
		30*time.Second, 20*time.Millisecond)
	_, err = peers.Forward(t.Context(), second.contact, tile.Intent{Tile: doorTile})
	require.ErrorIs(t, err, tile.ErrRedirect)
	first.ends(t)
	second.rings(t, peers)
	second.ends(t)

	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String(stack.DynamoURL),
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")})
	durable, err := dynamocheckpoint.New(client, "tilefence-checkpoints", nil)
	require.NoError(t, err)
	s, found, err := durable.Get(t.Context(), doorTile)
	require.NoError(t, err)
	require.True(t, found)
	coordination := redis.NewClusterClient(redisfence.Options(stack.CoordAddrs...))
	defer coordination.Close()
	store, err := redisfence.New(coordination, nil)
	require.NoError(t, err)
	owner, err := store.Owner(t.Context(), doorTile)
	require.NoError(t, err)
	assert.Equal(t, owner.Position, s.Position, "the last snapshot is durable")
	game, _, err := stream.OpenSnapshot(s.Blob)
	require.NoError(t, err)
	assert.Equal(t, []byte{2}, game, "both rings")
}

type process struct {
	*exec.Cmd
	contact string
	log     buffer
}

// rings sends an intent until it is applied.
func (p *process) rings(t *testing.T, peers *tilehttp.Client) {
	t.Helper()
	waittest.Until(t, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		outcome, err := peers.Forward(ctx, p.contact, tile.Intent{Tile: doorTile, ActionID: "ring at " + p.contact})
		return err == nil && outcome.Outcome == stream.Applied
	}, 30*time.Second, 20*time.Millisecond)
}

// ends tells the process to end, and wants it to end well.
func (p *process) ends(t *testing.T) {
	t.Helper()
	require.NoError(t, p.Process.Signal(syscall.SIGTERM))
	require.NoError(t, p.Wait())
}

// buffer may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// freeAddress is a loopback address that was free a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}
