package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/devstack/starttest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/relay/relayclient"
	"github.com/tilefence/tilefence/stream"
)

// makeGame writes a game that takes Tilefence from this working tree, and returns a function that runs the go command
// in it. What the game needs is mostly here already; the go.mod files of some modules that only other modules name may
// have to be fetched.
func makeGame(t *testing.T, options ...string) func(args ...string) {
	t.Helper()
	tree, err := filepath.Abs("../..")
	require.NoError(t, err)
	t.Chdir(t.TempDir())
	var out, errs bytes.Buffer
	args := slices.Concat([]string{"new", "-replace", tree}, options, []string{"mygame"})
	status := run(t.Context(), args, nil, &out, &errs)
	require.Equal(t, statusOK, status, errs.String())
	require.Contains(t, out.String(), "go run . -memory")
	sums, err := os.ReadFile(filepath.Join(tree, "go.sum"))
	require.NoError(t, err)
	t.Chdir("mygame")
	require.NoError(t, os.WriteFile("go.sum", sums, 0o644))
	return func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Env = append(os.Environ(), "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=mod -buildvcs=false")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
	}
}

// TestNewGame: what new writes is formatted, passes vet and its own tests, and plays.
func TestNewGame(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("builds a program, and runs it on a loopback address that only Linux has")
	}
	command := makeGame(t)
	unformatted, err := exec.Command("gofmt", "-l", ".").CombinedOutput()
	require.NoError(t, err)
	require.Empty(t, string(unformatted))
	command("vet", "./...")
	command("test", "./...")
	command("build", "-o", "game", ".")
	t.Run("memory", func(t *testing.T) { play(t, nil, []string{"-memory"}) })
	program, err := filepath.Abs("game")
	require.NoError(t, err)
	t.Run("starts", func(t *testing.T) {
		starttest.Run(t, func(operator string) *exec.Cmd { return exec.Command(program, "-operator", operator) })
	})
	t.Run("servers", func(t *testing.T) {
		stack := stacktest.Start(t, devstack.Config{AppendOnly: true,
			Parts: []devstack.Part{devstack.Coordination, devstack.Postgres, devstack.DynamoDB}})
		env := append(stack.Env(), "TILEFENCE_SECRET="+strings.Repeat("ab", 32))
		play(t, env, nil)
		play(t, env, everyPart...)
	})
}

// everyPart are the parts of a game, each a process of its own, two of them with tiles.
var everyPart = [][]string{{"-run", "tiles"}, {"-run", "tiles"}, {"-run", "gateway"}, {"-run", "bridge"},
	{"-run", "relay"}, {"-run", "checkpointer"}}

// play runs the game in processes with these arguments, scores once as its page does, and ends it.
func play(t *testing.T, env []string, processes ...[]string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	host := loopback()
	end := startGame(ctx, t, host, env, processes)
	score(ctx, t, host+":8080", "ann")
	waittest.Until(t, func() bool { // the first process has tiles
		return strings.Contains(get(ctx, "http://"+host+":9000/metrics"), "tilefence_tilehost_tiles") &&
			strings.Contains(get(ctx, "http://"+host+":9000/inspect/tiles"), plaza.String())
	}, 30*time.Second, 50*time.Millisecond)
	end()
}

// The tiles of a new game.
const plaza, garden fence.TileID = 0x85283083fffffff, 0x85283087fffffff

// score asks a gateway for the game's page, lets a player score in the plaza and go through the door, and waits until a
// watcher sees that.
func score(ctx context.Context, t *testing.T, gateway, name string) {
	for path, want := range map[string]string{
		"/": "<h1>mygame</h1>", "/page.js": "Client", "/relay/client.js": "Client"} {
		waittest.Until(t, func() bool { return strings.Contains(get(ctx, "http://"+gateway+path), want) },
			30*time.Second, 50*time.Millisecond, path)
	}
	points := map[fence.TileID]map[string]int{} // that the watcher holds, by tile and player
	var mu sync.Mutex
	watcher, err := relayclient.Dial(ctx, "ws://"+gateway+"/view", &relayclient.Config{
		Sync: func(s relayclient.Sync) { // a bridge may begin after the first entries were trimmed
			mu.Lock()
			defer mu.Unlock()
			held := map[string]int{}
			_ = json.Unmarshal(s.Snapshot.Blob, &held) // a tile that begins has no snapshot
			points[s.Tile] = held
		},
		Frame: func(e fence.Entry) {
			mu.Lock()
			defer mu.Unlock()
			batch, err := stream.DecodeBatch(&e)
			for i := 0; err == nil && i < len(batch.Events); i++ {
				var event struct {
					Who    string
					Points int
					Leaves bool
				}
				if _ = json.Unmarshal(batch.Events[i], &event); event.Leaves {
					delete(points[e.Tile], event.Who)
				} else {
					points[e.Tile][event.Who] += event.Points
				}
			}
		}})
	require.NoError(t, err)
	defer func() { _ = watcher.Close() }()
	require.NoError(t, watcher.Subscribe(ctx, plaza, garden))
	player, err := gatewayws.Dial(ctx, "ws://"+gateway+"/intent?player="+name, nil)
	require.NoError(t, err)
	defer func() { _ = player.Close() }()
	for _, body := range []string{"", "door"} {
		waittest.Until(t, func() bool { // the tile may not yet have an owner
			answer, err := player.Do(ctx, gatewayws.Request{Tile: plaza, Kind: admission.Move, Body: []byte(body)})
			return err == nil && answer.Outcome == stream.Applied
		}, 30*time.Second, 50*time.Millisecond)
	}
	waittest.Until(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		_, stayed := points[plaza][name]
		return points[garden][name] > 0 && !stayed
	}, 30*time.Second, 20*time.Millisecond, "the watcher does not see who has gone through the door")
}

// startGame starts the processes of a game and waits until all are well. end ends them in their order.
func startGame(ctx context.Context, t *testing.T, host string, env []string, processes [][]string) (end func()) {
	var started []*exec.Cmd
	for i, args := range processes {
		game := exec.CommandContext(ctx, "./game", append(args, "-listen", host+":8080", "-view", host+":8081",
			"-contact", fmt.Sprintf("%s:%d", host, 7000+i), "-operator", fmt.Sprintf("%s:%d", host, 9000+i))...)
		game.Env = append(append(os.Environ(), env...), fmt.Sprintf("TILEFENCE_GOSSIP=%s:%d", host, 7946+i),
			"TILEFENCE_GOSSIP_SEEDS="+host+":7946")
		game.Stdout = new(bytes.Buffer)
		game.Stderr = game.Stdout
		require.NoError(t, game.Start())
		t.Cleanup(func() {
			_, _ = game.Process.Kill(), game.Wait() // it has ended, unless the test failed
			if t.Failed() {
				t.Logf("%q\n%s", args, game.Stdout)
			}
		})
		started = append(started, game)
	}
	for i := range started {
		waittest.Until(t, func() bool {
			return get(ctx, fmt.Sprintf("http://%s:%d/readyz", host, 9000+i)) == "{\"healthy\":true}\n"
		}, 30*time.Second, 50*time.Millisecond)
	}
	return func() {
		for _, game := range started {
			require.NoError(t, game.Process.Signal(syscall.SIGTERM))
			require.NoError(t, game.Wait())
			require.NotContains(t, game.Stdout.(*bytes.Buffer).String(), "has no keys")
		}
	}
}

func get(ctx context.Context, url string) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return ""
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return ""
	}
	defer response.Body.Close()
	body, _ := io.ReadAll(response.Body) // the caller looks for what it wants
	return string(body)
}

// loopback is a loopback address of its own, on which every port is free: nothing else on the machine uses it.
func loopback() string {
	return fmt.Sprintf("127.%d.%d.%d", 64+rand.IntN(128), rand.IntN(256), 1+rand.IntN(254))
}

func TestNewRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"", "a", "My", "1st", "my_game", "../up", "a/b", "-x", "end-",
		strings.Repeat("x", 33)} {
		var out, errs bytes.Buffer
		require.Equal(t, statusUsage, newGame([]string{"--", name}, &out, &errs), name)
		require.Contains(t, errs.String(), "cannot be called", name)
	}
	require.NoError(t, os.Mkdir("mine", 0o755))
	require.NoError(t, os.WriteFile("mine/rules.go", []byte("package mine"), 0o644))
	var out, errs bytes.Buffer
	require.Equal(t, statusFailed, newGame([]string{"mine"}, &out, &errs))
	require.Contains(t, errs.String(), "mine: file exists")
	kept, err := os.ReadFile("mine/rules.go")
	require.NoError(t, err)
	require.Equal(t, "package mine", string(kept))
	entries, err := os.ReadDir(".")
	require.NoError(t, err)
	require.Len(t, entries, 1, "nothing else was written")
	require.Equal(t, statusUsage, newGame(nil, &out, &errs))
	require.Equal(t, statusOK, newGame([]string{"-h"}, &out, &errs))
}
