//go:build linux

package devstack_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"

	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// holdIn is set for the helper process that TestKilledParentLeavesNoProcess kills.
const holdIn = "TILEFENCE_TEST_HOLD_STACK_IN"

func TestMain(m *testing.M) {
	if dir := os.Getenv(holdIn); dir != "" {
		holdStack(dir)
	}
	goleak.VerifyTestMain(m)
}

// holdStack starts a stack in dir, says so, and waits to be killed.
func holdStack(dir string) {
	_, err := devstack.Start(context.Background(), devstack.Config{Dir: dir})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("ready")
	time.Sleep(time.Hour)
}

func TestStackServesEveryPartAndStopsWithoutTrace(t *testing.T) {
	var log syncBuffer
	dir := openDir(t)
	stack := stacktest.Start(t, devstack.Config{Dir: dir, Log: &log})
	require.Len(t, stack.CoordAddrs, 6)
	require.Len(t, stack.FanoutAddrs, 3)
	require.Len(t, stack.Processes(), 12)
	for _, part := range devstack.AllParts() {
		require.Contains(t, log.String(), string(part)+" ready in ")
	}

	writeToRedis(t, stack.CoordAddrs, 1)
	writeToRedis(t, stack.FanoutAddrs, 0)
	writeToPostgres(t, stack.PostgresURL)
	writeToDynamoDB(t, stack.DynamoURL)
	views := redis.NewClient(&redis.Options{Addr: stack.ViewsAddr})
	require.NoError(t, views.Set(t.Context(), "key", "value", 0).Err())
	require.NoError(t, views.Close())

	running := processesBelow(t, dir)
	require.GreaterOrEqual(t, len(running), 12)
	stack.Stop()
	stack.Stop() // the second call finds nothing to do
	require.Empty(t, processesBelow(t, dir))
	require.Empty(t, entries(t, dir))
	require.NotContains(t, log.String(), "unexpectedly")
}

func TestProcessesRestartAfterACrash(t *testing.T) {
	var log syncBuffer
	stack := stacktest.Start(t, devstack.Config{
		Dir: openDir(t), Log: &log,
		Parts: []devstack.Part{devstack.Fanout, devstack.Postgres, devstack.DynamoDB},
	})
	writeToPostgres(t, stack.PostgresURL)
	for _, name := range []string{"fanout-2", "postgres", "dynamodb"} {
		p, ok := stack.Process(name)
		require.True(t, ok, name)
		before := p.Pid()
		require.NoError(t, syscall.Kill(before, syscall.SIGKILL))
		<-p.Exited()
		require.ErrorIs(t, p.Signal(syscall.SIGTERM), os.ErrProcessDone)
		waittest.Until(t, func() bool {
			return strings.Contains(log.String(),
				fmt.Sprintf("%s (pid %d) ended unexpectedly: signal: killed", name, before))
		}, 5*time.Second, 5*time.Millisecond)
		require.NoError(t, p.Restart(t.Context()), name)
		require.NotEqual(t, before, p.Pid())
	}
	require.Equal(t, 1, countInPostgres(t, stack.PostgresURL), "a committed row survives the crash of PostgreSQL")
	writeToDynamoDB(t, stack.DynamoURL)
	_, ok := stack.Process("coord-1")
	require.False(t, ok, "the part was not started")

	stack.Stop()
	p, _ := stack.Process("postgres")
	require.ErrorIs(t, p.Restart(t.Context()), devstack.ErrStopped)
}

func TestReplicaTakesOverFromAKilledMaster(t *testing.T) {
	stack := stacktest.Start(t, devstack.Config{
		Dir:         openDir(t),
		Parts:       []devstack.Part{devstack.Coordination},
		NodeTimeout: 500 * time.Millisecond,
	})
	master, ok := stack.Process("coord-1")
	require.True(t, ok)
	cluster := stack.Cluster()
	defer cluster.Close()
	require.NoError(t, cluster.Whole(t.Context()))
	replicas, err := cluster.Replicas(t.Context(), master)
	require.NoError(t, err)
	require.Len(t, replicas, 1)
	replica := replicas[0]
	require.Equal(t, "coord-4", replica.Name())
	require.NoError(t, cluster.Promoted(t.Context(), master))
	require.Error(t, cluster.Promoted(t.Context(), replica))
	require.NoError(t, master.Signal(os.Kill))
	waittest.Until(t, func() bool { return cluster.Promoted(t.Context(), replica) == nil }, 20*time.Second,
		50*time.Millisecond)
	require.Error(t, cluster.Whole(t.Context()))
	require.NoError(t, master.Restart(t.Context()))
	waittest.Until(t, func() bool { return cluster.Whole(t.Context()) == nil }, 20*time.Second, 50*time.Millisecond)
	masters, err := cluster.Masters(t.Context())
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"coord-2", "coord-3", "coord-4"},
		[]string{masters[0].Name(), masters[1].Name(), masters[2].Name()})
}

func TestStopEndsAPausedProcess(t *testing.T) {
	dir := openDir(t)
	stack := stacktest.Start(t, devstack.Config{Dir: dir, Parts: []devstack.Part{devstack.Postgres, devstack.DynamoDB}})
	for _, p := range stack.Processes() {
		require.NoError(t, p.Signal(syscall.SIGSTOP))
	}
	stack.Stop()
	require.Empty(t, processesBelow(t, dir))
	require.Empty(t, entries(t, dir))
}

func TestCancelledStartLeavesNothing(t *testing.T) {
	stacktest.RequireFullTest(t)
	for _, after := range []time.Duration{0, 20 * time.Millisecond, 300 * time.Millisecond, time.Second} {
		dir := openDir(t)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		_, err := devstack.Start(ctx, devstack.Config{Dir: dir})
		cancel()
		if !errors.Is(err, os.ErrDeadlineExceeded) { // a connection's deadline can be the first to end
			require.ErrorIs(t, err, context.DeadlineExceeded, "after %v", after)
		}
		// What initdb had started ends with it, and takes a moment.
		waittest.Until(t, func() bool { return len(processesBelow(t, dir)) == 0 }, 15*time.Second, 10*time.Millisecond,
			after)
		require.Empty(t, entries(t, dir), "after %v", after)
	}
}

func TestKilledParentLeavesNoProcess(t *testing.T) {
	stacktest.RequireFullTest(t)
	dir := openDir(t)
	helper := exec.Command(os.Args[0])
	helper.Env = append(os.Environ(), holdIn+"="+dir)
	out, err := helper.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, helper.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	require.GreaterOrEqual(t, len(processesBelow(t, dir)), 11)

	require.NoError(t, helper.Process.Kill())
	_ = helper.Wait() // says that it was killed
	waittest.Until(t, func() bool { return len(processesBelow(t, dir)) == 0 }, 15*time.Second, 20*time.Millisecond,
		"servers outlived their killed parent")

	left := entries(t, dir)
	require.Len(t, left, 1, "no process was left to remove the directory")
	longAgo := time.Now().Add(-time.Minute)
	require.NoError(t, os.Chtimes(filepath.Join(dir, left[0], "lock"), longAgo, longAgo))
	next := stacktest.Start(t, devstack.Config{Dir: dir, Parts: []devstack.Part{devstack.DynamoDB}})
	require.NotContains(t, entries(t, dir), left[0], "the next stack removes it")
	next.Stop()
	require.Empty(t, entries(t, dir))
}

func TestMissingProgramsAreNamedTogether(t *testing.T) {
	empty := t.TempDir()
	t.Setenv("PATH", empty)
	t.Setenv("XDG_CACHE_HOME", empty)
	t.Setenv("TILEFENCE_DYNOXIDE", "")
	_, err := devstack.Start(t.Context(), devstack.Config{
		Dir: empty, Parts: []devstack.Part{devstack.Fanout, devstack.DynamoDB},
	})
	require.ErrorIs(t, err, devstack.ErrMissingProgram)
	var missing *devstack.MissingProgramError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, "redis-server", missing.Program)
	for _, text := range []string{"apt-get install redis-server", "dynoxide", "install-tools.sh"} {
		require.ErrorContains(t, err, text)
	}
	require.Empty(t, entries(t, empty), "nothing was begun")
}

func TestConfigIsChecked(t *testing.T) {
	for name, cfg := range map[string]devstack.Config{
		"NodeTimeout": {NodeTimeout: -time.Second},
		"Parts":       {Parts: []devstack.Part{"etcd"}},
		"Replicas":    {Replicas: -1},
	} {
		_, err := devstack.Start(t.Context(), cfg)
		require.ErrorContains(t, err, name)
	}
}

func TestPartsHaveNames(t *testing.T) {
	for _, part := range devstack.AllParts() {
		parsed, err := devstack.ParsePart(string(part))
		require.NoError(t, err)
		require.Equal(t, part, parsed)
	}
	_, err := devstack.ParsePart("etcd")
	require.ErrorContains(t, err, "etcd")
}

// The script pins the version it downloads, and the package looks for it by version.
func TestInstallScriptInstallsTheVersionLookedFor(t *testing.T) {
	script, err := os.ReadFile("../../scripts/install-tools.sh")
	require.NoError(t, err)
	require.Contains(t, string(script), "\ndynoxide_version="+devstack.DynoxideVersion+"\n")
}

func writeToRedis(t *testing.T, addrs []string, replicas int) {
	t.Helper()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: addrs})
	defer func() { _ = client.Close() }()
	for i := range 100 { // enough keys to reach every master
		require.NoError(t, client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err())
	}
	require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, master *redis.Client) error {
		if err := master.Set(ctx, "other", 1, 0).Err(); err != nil && !strings.HasPrefix(err.Error(), "MOVED") {
			return err
		}
		got, err := master.Wait(ctx, replicas, 2*time.Second).Result()
		if err == nil && int(got) < replicas {
			err = fmt.Errorf("%d of %d replicas have the write", got, replicas)
		}
		return err
	}))
}

func connectPostgres(t *testing.T, address string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func writeToPostgres(t *testing.T, address string) {
	t.Helper()
	conn := connectPostgres(t, address)
	_, err := conn.Exec(t.Context(), "CREATE TABLE tries (n int); INSERT INTO tries VALUES (1)")
	require.NoError(t, err)
	require.Equal(t, 1, countInPostgres(t, address))
	var fsync string
	require.NoError(t, conn.QueryRow(t.Context(), "SHOW fsync").Scan(&fsync))
	require.Equal(t, "on", fsync)
}

func countInPostgres(t *testing.T, address string) (n int) {
	t.Helper()
	require.NoError(t, connectPostgres(t, address).QueryRow(t.Context(), "SELECT count(*) FROM tries").Scan(&n))
	return n
}

func writeToDynamoDB(t *testing.T, endpoint string) {
	t.Helper()
	client := dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(endpoint),
		Region:       "local",
		Credentials:  credentials.NewStaticCredentialsProvider("local", "local", ""),
		HTTPClient:   aws.NewConfig().HTTPClient,
	})
	table := aws.String("tries")
	_, err := client.CreateTable(t.Context(), &dynamodb.CreateTableInput{
		TableName:   table,
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{{AttributeName: aws.String("k"),
			AttributeType: types.ScalarAttributeTypeS}},
		KeySchema: []types.KeySchemaElement{{AttributeName: aws.String("k"), KeyType: types.KeyTypeHash}},
	})
	require.NoError(t, err)
	item := map[string]types.AttributeValue{"k": &types.AttributeValueMemberS{Value: "a"}}
	put := &dynamodb.PutItemInput{TableName: table, Item: item,
		ConditionExpression: aws.String("attribute_not_exists(k)")}
	_, err = client.PutItem(t.Context(), put)
	require.NoError(t, err)
	_, err = client.PutItem(t.Context(), put)
	var refused *types.ConditionalCheckFailedException
	require.ErrorAs(t, err, &refused)
}

// openDir returns a temporary directory that the user postgres may enter too.
func openDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "devstack-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	require.NoError(t, os.Chmod(dir, 0o755))
	return dir
}

func entries(t *testing.T, dir string) []string {
	t.Helper()
	found, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, entry := range found {
		names = append(names, entry.Name())
	}
	return names
}

// processesBelow returns the processes whose working directory lies below dir, which is true of every
// server and of PostgreSQL's many children.
func processesBelow(t *testing.T, dir string) []string {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	require.NoError(t, err)
	var pids []string
	for _, link := range links {
		// A process that ends while we look has no link any more, like one that has only to be waited for.
		if cwd, err := os.Readlink(link); err == nil && strings.HasPrefix(cwd, dir+"/") {
			pids = append(pids, filepath.Base(filepath.Dir(link)))
		}
	}
	return pids
}

// syncBuffer is a buffer that several goroutines may write to.
type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

var _ io.Writer = (*syncBuffer)(nil)

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
