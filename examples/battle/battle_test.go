package main

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/devstack/starttest"
	"github.com/tilefence/tilefence/internal/statuspoller"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// screen is what a person would see; it may be read while it is written.
type screen struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// find waits until the screen shows something and returns the first group of the pattern.
func (s *screen) find(t *testing.T, pattern string) string {
	t.Helper()
	re := regexp.MustCompile(pattern)
	var found []string
	waittest.Until(t, func() bool {
		found = re.FindStringSubmatch(s.String())
		return found != nil
	}, 30*time.Second, 20*time.Millisecond, "the screen never showed %s", pattern)
	return found[1]
}

func TestBattleOnEmbeddedBackEnds(t *testing.T) {
	t.Parallel()
	checkBattle(t, "-stack", "embedded")
}

// TestBattleOnServers has servers of its own, to see that all their keys are those of the battle's world.
func TestBattleOnServers(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{
		Parts: []devstack.Part{devstack.Coordination, devstack.Fanout, devstack.DynamoDB, devstack.Views}})
	checkBattle(t, "-redis", strings.Join(stack.CoordAddrs, ","), "-fanout", strings.Join(stack.FanoutAddrs, ","),
		"-dynamodb", stack.DynamoURL, "-postgres", stacktest.PostgresDB(t), "-views", stack.ViewsAddr, "-world", "one")
	for name, addresses := range map[string][]string{"coordination": stack.CoordAddrs, "fan-out": stack.FanoutAddrs,
		"views": {stack.ViewsAddr}} {
		found := 0
		for _, a := range addresses {
			server := redis.NewClient(&redis.Options{Addr: a})
			keys, err := server.Keys(t.Context(), "*").Result()
			require.NoError(t, err)
			for _, k := range keys {
				assert.True(t, strings.HasPrefix(k, "one:"), "%s: the key %q is of no world", name, k)
			}
			found += len(keys)
			_ = server.Close()
		}
		assert.Positive(t, found, name)
	}
}

// checkBattle plays a short battle in one process, takes a tile over through the page's button, and
// wants every view to converge.
func checkBattle(t *testing.T, servers ...string) {
	p := play(t, append([]string{"-tiles", "3", "-clients", "24", "-tick", "100ms"}, servers...)...)
	before := p.watch(t, func(s statuspoller.Status) bool { return len(s.Tiles) == 3 && s.Tiles[0].Seq > 5 })
	p.takeOver(t, before.Tiles[0].Tile)
	after := p.watch(t, func(s statuspoller.Status) bool {
		return s.Tiles[0].Epoch > before.Tiles[0].Epoch && s.Tiles[0].State == "serving" &&
			s.Tiles[0].Owner != before.Tiles[0].Owner
	})
	assert.Greater(t, after.Tiles[0].Seq, before.Tiles[0].Seq, "the sequence continues")

	p.watch(t, func(s statuspoller.Status) bool { return s.Lobby != nil && s.Lobby.Seated > 0 })
	p.watch(t, func(s statuspoller.Status) bool {
		known := s.ColdReads != nil && s.StaleDrops != nil && s.SupersededTails != nil && s.DeadLetters != nil
		return known && *s.ColdReads > 0 && s.Ledger["applied"] > 0 && s.BytesPerTick > 0 &&
			s.Tiles[0].Lost != nil && len(s.Tiles[0].Marks) > 1
	})
	for _, name := range []string{"admission_settles_total", "checkpoint_write_seconds_count", "relay_repairs_total"} {
		p.counts(t, name)
	}
	time.Sleep(3 * time.Second) // some play after the take-over
	r := p.end(t)
	assert.True(t, r.Converged, r.Why)
	for name, least := range map[string]float64{
		"tile_transitions_total/serving": 4, // each tile's first owner, and the one that took over
		"tile_takeover_seconds":          1, "tile_commit_seconds": 4, "tile_events_total": 1,
		"tile_tick_seconds": 1, "tile_snapshots_total/saved": 1, "checkpoint_write_seconds": 1,
		"relay_repairs_total": 1,
	} {
		assert.GreaterOrEqual(t, r.Servers[name], least, name)
	}
	source, err := os.ReadFile("../../internal/benchmark/measure/report.go")
	require.NoError(t, err)
	for _, name := range regexp.MustCompile(`n\["([^"]+)"\]`).FindAllStringSubmatch(string(source), -1) {
		assert.Contains(t, r.Servers, name[1], "the report names a metric that there is not")
	}
	assert.Greater(t, r.ClientFrames, int64(100))
	assert.Positive(t, r.CommitLatency.P50)
	assert.Positive(t, r.CommitToClient.P99)
	assert.Positive(t, r.BytesPerClientTick)
	assert.Zero(t, r.Ledger["unanswered"], "every card has an outcome")
	var answered int64
	for _, n := range r.Ledger {
		answered += n
	}
	assert.Equal(t, r.Cards, answered)
	require.NotNil(t, r.Lobby)
	assert.Empty(t, r.Lobby.Why)
	assert.Positive(t, r.Lobby.Seated)
	assert.Equal(t, r.Lobby.Created, r.Lobby.Seated+r.Lobby.Cancelled+r.Lobby.Waiting+r.Lobby.TimedOut)
	require.NotNil(t, r.Routing)
	assert.Greater(t, r.Routing.Gossip.Answers, r.Routing.Store.Answers, "the members' own table answers first")
}

// pageClient bounds each request to a page: a page that does not answer fails the test that asks it.
var pageClient = &http.Client{Timeout: 15 * time.Second}

// watch asks the page's own address for the status until it is as wanted. It waits 45 s, times the patience of
// waittest, which is less than a run of go test may take. If the battle has ended, the test fails at once.
func watch(t *testing.T, page string, as func(statuspoller.Status) bool, ended <-chan struct{}) statuspoller.Status {
	t.Helper()
	var got spectator.Report
	waittest.Until(t, func() bool {
		select {
		case <-ended:
			require.Fail(t, "the battle has ended")
		default:
		}
		response, err := pageClient.Get(page + "api/status")
		if err != nil {
			return false
		}
		defer response.Body.Close()
		got = spectator.Report{} // a field that is left out of this answer is not that of the last one
		return json.NewDecoder(response.Body).Decode(&got) == nil && as(got.Status)
	}, 45*time.Second, 50*time.Millisecond)
	return got.Status
}

// processes builds the battle and returns what starts an actor of it as a process.
func processes(t *testing.T, common ...string) (start func(args ...string) (*exec.Cmd, *screen)) {
	program := filepath.Join(t.TempDir(), "battle")
	build, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", build)
	return func(args ...string) (*exec.Cmd, *screen) {
		c := exec.Command(program, append(args, common...)...)
		s := &screen{}
		c.Stdout, c.Stderr = s, s
		c.Env = append(os.Environ(), "TMPDIR="+t.TempDir()) // what is killed leaves its directory
		devstack.EndTogether(c)
		require.NoError(t, c.Start())
		t.Cleanup(func() {
			_ = c.Process.Kill() // most have ended by then
			_ = c.Wait()
			if t.Failed() {
				t.Logf("%s:\n%s", strings.Join(args, " "), s)
			}
		})
		return c, s
	}
}

// newWorld is the name of a world that no other test has, on servers that all share.
func newWorld() string { return "test-" + strings.ToLower(rand.Text()[:12]) }

// TestActorsAsProcesses runs every actor as a process of its own, with gossip between two tile hosts and the
// gateway. It kills one host with SIGKILL, and wants the other, a warm follower, to hear of it and to take its
// tiles over; then a third takes one from the second by -takeover. The bots must converge.
func TestActorsAsProcesses(t *testing.T) {
	t.Parallel()
	servers := []string{"-redis", strings.Join(stacktest.Redis(t), ","), "-fanout", strings.Join(stacktest.Fanout(t),
		","),
		"-postgres", stacktest.PostgresDB(t), "-dynamodb", stacktest.DynamoDB(t), "-tiles", "4", "-tick", "100ms", "-v",
		"-world", newWorld()}
	start := processes(t, servers...)
	hostA, screenA := start("tile", "-listen", "127.0.0.1:0", "-own", "0,1", "-follow", "all", "-gossip", "127.0.0.1:0")
	seed := screenA.find(t, `gossip: listening.*addr=(\S+)`)
	_, screenB := start("tile", "-listen", "127.0.0.1:0", "-own", "2,3", "-follow", "all", "-gossip", "127.0.0.1:0",
		"-gossip-seeds", seed)
	second := screenB.find(t, `gossip: listening.*addr=(\S+)`)
	contactA, contactB := screenA.find(t, `tile host at (\S+):`), screenB.find(t, `tile host at (\S+):`)
	contacts := contactA + "," + contactB
	bridge, _ := start("bridge")
	checkpointer, _ := start("checkpointer")
	relay, relayScreen := start("relay", "-listen", "127.0.0.1:0", "-hosts-at", contacts)
	gateway, gatewayScreen := start("gateway", "-listen", "127.0.0.1:0", "-gossip", "127.0.0.1:0", "-gossip-seeds",
		seed+","+second)
	view, page := relayScreen.find(t, `relay at (ws://\S+),`), relayScreen.find(t, `page at (http://\S+/)`)
	intents := gatewayScreen.find(t, `gateway at (\S+)`)
	gatewayPage := strings.Replace(strings.TrimSuffix(intents, "intent"), "ws:", "http:", 1)
	bots, botScreen := start("bots", "-clients", "16", "-duration", "15s",
		"-relay", view, "-gateway", intents,
		"-report", "json")

	before := watch(t, page, func(s statuspoller.Status) bool {
		return len(s.Tiles) == 4 && s.Tiles[0].Seq > 5 &&
			s.Tiles[1].Seq > 5
	}, nil)
	inspected := string(get(t, "http://"+contactA+"/inspect/tiles"))
	assert.Contains(t, inspected, `"state":"serving","durability":"checkpointed","owner":"`+contactA)
	require.Equal(t, contactA, before.Tiles[0].Owner)
	killed := time.Now()
	require.NoError(t, hostA.Process.Signal(os.Kill))
	after := watch(t, page, func(s statuspoller.Status) bool {
		return s.Tiles[0].Owner == contactB &&
			s.Tiles[1].Owner == contactB
	}, nil)
	t.Logf("the killed host's tiles were taken over within %v", time.Since(killed))
	screenB.find(t, `member (died)" contact=`+regexp.QuoteMeta(contactA))
	t.Logf("gossip held it for dead within %v", time.Since(killed))
	_, screenC := start("tile", "-listen", "127.0.0.1:0", "-own", "0", "-takeover")
	contactC := screenC.find(t, `tile host at (\S+):`)
	taken := watch(t, page, func(s statuspoller.Status) bool { return s.Tiles[0].Owner == contactC }, nil)
	assert.Greater(t, taken.Tiles[0].Epoch, after.Tiles[0].Epoch)
	metrics := string(get(t, gatewayPage+"metrics"))
	assert.Regexp(t, `\ntilefence_route_answers_total{source="gossip"} [1-9]`, metrics)
	assert.Regexp(t, `\ntilefence_route_stale_total{source="gossip"} [1-9]`, metrics,
		"moves that were sent to the dead")
	require.NoError(t, bots.Wait(), "the bots did not converge: %s", botScreen)
	assert.Contains(t, botScreen.String(), `"converged": true`)
	assert.Regexp(t, `"census": \{\s+"born": [1-9]`, botScreen.String())
	for _, c := range []*exec.Cmd{bridge, checkpointer, relay, gateway} {
		require.NoError(t, c.Process.Signal(syscall.SIGTERM))
		assert.NoError(t, c.Wait(), "SIGTERM drains and ends with status 0")
	}
}

// asProgram makes this test binary be the program.
const asProgram = "RUN_BATTLE=1"

func TestMain(m *testing.M) {
	if slices.Contains(os.Environ(), asProgram) {
		main()
	}
	os.Exit(m.Run())
}

func TestStarts(t *testing.T) {
	t.Parallel()
	starttest.Run(t, func(operator string) *exec.Cmd {
		c := exec.Command(os.Args[0], "tile", "-listen", operator)
		c.Env = []string{asProgram}
		return c
	})
}

func TestBadCommandLines(t *testing.T) {
	for _, name := range serverFlags { // that the tests of servers have
		t.Setenv("TILEFENCE_"+strings.ToUpper(name), "")
	}
	t.Setenv("TILEFENCE_SECRET", "")
	t.Setenv("TILEFENCE_STACK", "embedded")
	t.Setenv("TILEFENCE_HOSTS", "3")
	for args, want := range map[string]string{
		"-tiles 0":                          "want 1 to 37",
		"-tiles 99":                         "want 1 to 37",
		"-clients -1":                       "want 0 to 20000",
		"-tick 1ms":                         "at least 10ms",
		"-stack moon":                       "want embedded or local",
		"-durability iron":                  "checkpointed, replicated, write-through",
		"-chaos -hosts 1":                   "want at least -hosts 2",
		"-chaos -chaos-every 1ms":           "at least 100ms",
		"bridge -secure":                    "give bridge -certificates and -secret",
		"bridge -secure -certificates x":    "give bridge -certificates and -secret",
		"-certificates x":                   "are for -secure",
		"bridge -chaos":                     "breaks what one process holds together",
		"-gossip 127.0.0.1:0":               "a battle in one process needs none",
		"tile -gossip-seeds 127.0.0.1:1":    "give -gossip too",
		"-balance-every -1s":                "zero or more",
		"-lobby 1001":                       "want 0 to 1000",
		"-pilots 101":                       "want 0 to 100",
		"-report xml":                       "want text, json or none",
		"-redis 127.0.0.1:1":                "are needed all together",
		"-stack local -redis x -postgres y": "starts servers of its own",
		"-orders":                           "a battle in one process takes none",
		"bridge":                            "only against servers",
		"pirates":                           "there is no actor",
		"-world -a":                         "-world: ",
		"extra words":                       "there is no actor",
		"-tiles 3 words":                    "neither an actor nor a flag",
		"-nonsense":                         "flag provided but not defined",
		"tile -own 9 -redis a -postgres b -dynamodb c -tiles x": "invalid value",
	} {
		var out, errs bytes.Buffer
		assert.Equal(t, exitUsage, run(t.Context(), strings.Fields(args), &out, &errs), args)
		assert.Contains(t, errs.String(), want, args)
		assert.Empty(t, out.String(), args)
	}
	t.Setenv("TILEFENCE_CLIENTS", "many")
	var errs bytes.Buffer
	assert.Equal(t, exitUsage, run(t.Context(), nil, &errs, &errs))
	assert.Contains(t, errs.String(), "TILEFENCE_CLIENTS")
}

// TestServersOfTheEnvironment: they are used unless the command line says which servers to use.
func TestServersOfTheEnvironment(t *testing.T) {
	for name, value := range map[string]string{"STACK": "embedded", "REDIS": "a:1", "FANOUT": "b:2", "VIEWS": "c:3",
		"POSTGRES": "postgres://d", "DYNAMODB": "http://e:5"} {
		t.Setenv("TILEFENCE_"+name, value)
	}
	o, err := parse([]string{"-tiles", "3"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"servers", "a:1", "b:2", "c:3"}, []string{o.stack, o.redis, o.fanout, o.views})
	o, err = parse([]string{"-stack", "embedded"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"embedded", "", "", ""}, []string{o.stack, o.redis, o.fanout, o.views})
	o, err = parse([]string{"-redis", "x:1", "-postgres", "y", "-dynamodb", "z"}, io.Discard)
	require.NoError(t, err)
	assert.Equal(t, []string{"servers", "x:1", "x:1", ""}, []string{o.stack, o.redis, o.fanout, o.views})
}

func TestHelp(t *testing.T) {
	var out, errs bytes.Buffer
	assert.Equal(t, exitOK, run(t.Context(), []string{"-h"}, &out, &errs))
	for name := range commands {
		assert.Contains(t, errs.String(), name)
	}
}
