package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/certs"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

// mover may do what docs/operations.md says that slots move needs.
const mover = "user mover on >move-it ~* -@all +hello +auth +ping +client|setname +command +select +cluster +info " +
	"+migrate +restore-asking +restore +dump +del"

// TestTLSAndUsers: a URL leads the commands to servers that want TLS, a certificate and a user, whose rights are those
// of deploy/acl. What is wrong with it is said without the password.
func TestTLSAndUsers(t *testing.T) {
	stacktest.RequireFullTest(t)
	t.Parallel()
	authority, err := certs.New()
	require.NoError(t, err)
	f, err := authority.Write(t.TempDir())
	require.NoError(t, err)
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Coordination}, Certificates: authority})
	files := url.Values{"ca": {f.Authority}, "cert": {f.Certificate}, "key": {f.Key}}.Encode()
	server := func(user, files string) string {
		return "rediss://" + user + strings.Join(stack.CoordAddrs, ",") + "?" + files
	}
	nodes := stack.Cluster()
	defer nodes.Close()
	acl, err := os.ReadFile("../../deploy/acl/coordination.acl")
	require.NoError(t, err)
	for line := range strings.Lines(string(acl) + mover + "\n") {
		command := []any{"acl", "setuser"}
		for _, word := range strings.Fields(line)[1:] {
			command = append(command, word)
		}
		for _, p := range nodes.Processes() {
			require.NoError(t, nodes.Node(p).Do(t.Context(), command...).Err(), line)
		}
	}

	o, err := redisfence.ParseOptions(server("", files))
	require.NoError(t, err)
	client := redis.NewClusterClient(o)
	defer func() { _ = client.Close() }()
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	tile := fence.TileID(rand.Uint64()>>1 | 1)
	waittest.Until(t, func() bool {
		_, err := store.Commit(t.Context(), fence.Commit{Tile: tile, Epoch: 1, Contact: "a:1", Tick: 1,
			Payload: []byte("kept"), Install: true, Replicas: fence.AllReplicas})
		return err == nil
	}, 20*time.Second, 50*time.Millisecond)

	tilectl := func(server, line string) (int, string, string) {
		var out, errs bytes.Buffer
		status := run(t.Context(), append([]string{"-redis", server, "-timeout", "5s"}, strings.Fields(line)...),
			strings.NewReader(""), &out, &errs)
		require.NotContains(t, errs.String(), "CHANGE-ME")
		return status, out.String(), errs.String()
	}
	viewer := server("tilefence-viewer:CHANGE-ME-viewer@", files)
	status, _, errs := tilectl(viewer, "deadletters "+tile.String())
	require.Equal(t, statusOK, status, errs)
	status, out, errs := tilectl(viewer, "trace "+tile.String())
	require.Equal(t, statusOK, status, errs)
	require.NotEmpty(t, out)
	status, _, errs = tilectl(viewer, "deadletters drop -yes "+tile.String()+" 1-1")
	require.Equal(t, statusFailed, status)
	require.Contains(t, errs, "1-1")
	for what, wrong := range map[string]string{
		"WRONGPASS": server("tilefence-viewer:CHANGE-ME-all@", files),
		"NOAUTH":    "redis://" + stack.CoordAddrs[0],
	} {
		status, _, errs = tilectl(wrong, "deadletters "+tile.String())
		require.Equal(t, statusFailed, status, what)
		require.NotEmpty(t, errs)
	}
	status, _, errs = tilectl(server("tilefence-viewer:CHANGE-ME-viewer@", ""), "deadletters "+tile.String())
	require.Equal(t, statusFailed, status)
	require.Contains(t, errs, "certificate")

	// The nodes pass the key on with TLS, under the same user.
	slot, err := client.ClusterKeySlot(t.Context(), fence.KeysOf(tile).Owner).Result()
	require.NoError(t, err)
	from, err := client.MasterForKey(t.Context(), fence.KeysOf(tile).Owner)
	require.NoError(t, err)
	masters, err := nodes.Masters(t.Context())
	require.NoError(t, err)
	to := masters[0].Addr()
	if to == from.Options().Addr {
		to = masters[1].Addr()
	}
	waittest.Until(t, func() bool {
		status, out, errs = tilectl(server("mover:move-it@", files), fmt.Sprintf("slots move %s %d", to, slot))
		return status == statusOK
	}, 20*time.Second, 100*time.Millisecond, "%s", &errs)
	require.Contains(t, out, "2 keys moved")
}
