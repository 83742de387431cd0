package main

import (
	"bytes"
	"context"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout/redisfanout"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// servers are what a deployment has for one tile, which is removed at the end of the test.
type servers struct {
	seams  tile.Seams
	client *redis.ClusterClient
	id     fence.TileID
	flags  []string // that lead tilectl to them
}

func newServers(t *testing.T) *servers {
	t.Helper()
	addrs, postgres := stacktest.Redis(t), stacktest.PostgresDB(t)
	pool, err := pgxpool.New(t.Context(), postgres)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	authority, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, authority.Migrate(t.Context()))
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	t.Cleanup(func() { _ = client.Close() })
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	id := fence.TileID(rand.Uint64()>>1 | 1)
	k := fence.KeysOf(id)
	t.Cleanup(func() { client.Del(context.WithoutCancel(t.Context()), k.Owner, k.Stream, k.Snapshot) })
	return &servers{seams: tile.Seams{Authority: authority, Store: store, Log: redisstream.New(store, client)},
		client: client, id: id, flags: []string{"-redis", strings.Join(addrs, ","), "-postgres", postgres}}
}

// TestOnServers runs the program as its user does.
func TestOnServers(t *testing.T) {
	s := newServers(t)
	dynamo, delivery := stacktest.DynamoDB(t), stacktest.Fanout(t)
	authority, store, id := s.seams.Authority, s.seams.Store, s.id
	grant, err := authority.Claim(t.Context(), fence.Claim{Tile: id, Contact: "10.0.0.1:7000", ID: fence.NewClaimID()})
	require.NoError(t, err)
	_, err = store.Rebase(t.Context(), fence.Rebase{Tile: id, Epoch: grant.Epoch, Contact: "10.0.0.1:7000", Seq: 1,
		Blob: []byte("state")})
	require.NoError(t, err)

	tilectl := func(line string) (int, string, string) {
		var out, errs bytes.Buffer
		args := slices.Concat(s.flags, []string{"-dynamodb", dynamo, "-fanout", strings.Join(delivery, ","),
			"-checkpoints", stacktest.UniqueName(t)}, strings.Fields(line))
		status := run(t.Context(), args, strings.NewReader("yes\n"), &out, &errs)
		return status, out.String(), errs.String()
	}
	status, out, errs := tilectl("tiles -json")
	require.Equal(t, statusOK, status, errs)
	var row tileRow
	require.NoError(t, json.Unmarshal([]byte(out), &row))
	require.Equal(t, id, row.Tile)
	require.Equal(t, "owned", row.State)
	require.Equal(t, "10.0.0.1:7000", row.Owner)
	require.Equal(t, 1, row.Entries)
	require.Positive(t, row.Memory)
	require.EqualValues(t, 1, row.Snapshot)

	status, _, errs = tilectl("checkpoint restore " + id.String())
	require.Equal(t, statusFailed, status)
	require.NotEmpty(t, errs, "there is no table of checkpoints: said, and not made")

	// On AWS itself: the endpoint is from the environment, which stands for what the SDK finds out.
	for name, value := range map[string]string{"AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "x",
		"AWS_SECRET_ACCESS_KEY": "x",
		"AWS_ENDPOINT_URL":      dynamo, "AWS_CONFIG_FILE": os.DevNull, "AWS_SHARED_CREDENTIALS_FILE": os.DevNull,
		"AWS_EC2_METADATA_DISABLED": "true"} {
		t.Setenv(name, value)
	}
	status, _, errs = tilectl("-dynamodb aws checkpoint show " + id.String())
	require.Equal(t, statusFailed, status)
	require.Contains(t, errs, "ResourceNotFoundException", "it reached the server")
	require.Contains(t, errs, "name yours with -ledger and -checkpoints")
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	status, _, errs = tilectl("-dynamodb aws checkpoint show " + id.String())
	require.Equal(t, statusUsage, status)
	require.Contains(t, errs, "AWS_REGION")
}

// TestNamedWorld: a command reads the tiles of the world that it is given, and of no other.
func TestNamedWorld(t *testing.T) {
	s := newServers(t)
	postgres := s.flags[len(s.flags)-1]
	pool, err := pgxpool.New(t.Context(), postgres)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	authority, err := pgfence.New(pool, &pgfence.Config{World: "staging"})
	require.NoError(t, err)
	require.NoError(t, authority.Migrate(t.Context()))
	world := fence.World{Name: "staging"}
	named, err := redisfence.New(s.client, &redisfence.Config{World: world, Persistence: redisfence.Volatile})
	require.NoError(t, err)
	k := world.Keys(s.id)
	t.Cleanup(func() { s.client.Del(context.WithoutCancel(t.Context()), k.Owner, k.Stream, k.Snapshot) })
	for _, w := range []struct {
		authority fence.Authority
		store     fence.Store
		contact   string
	}{{s.seams.Authority, s.seams.Store, "10.0.0.1:7000"}, {authority, named, "10.0.0.2:7000"}} {
		claim := fence.Claim{Tile: s.id, Contact: w.contact, ID: fence.NewClaimID()}
		grant, err := w.authority.Claim(t.Context(), claim)
		require.NoError(t, err)
		_, err = w.store.Rebase(t.Context(), fence.Rebase{Tile: s.id, Epoch: grant.Epoch, Contact: w.contact, Seq: 1,
			Blob: []byte("state")})
		require.NoError(t, err)
	}
	owner := func(status int, flags ...string) string {
		var out, errs bytes.Buffer
		args := slices.Concat(s.flags, flags, []string{"tiles", "-json", s.id.String()})
		require.Equal(t, status, run(t.Context(), args, strings.NewReader(""), &out, &errs), errs.String())
		if status != statusOK {
			return errs.String()
		}
		var row tileRow
		require.NoError(t, json.Unmarshal(out.Bytes(), &row))
		require.EqualValues(t, 1, row.Snapshot, "its stream is of the same world")
		return row.Owner
	}
	require.Equal(t, "10.0.0.1:7000", owner(statusOK))
	require.Equal(t, "10.0.0.2:7000", owner(statusOK, "-world", "staging"))
	t.Setenv("TILEFENCE_WORLD", "staging")
	require.Equal(t, "10.0.0.2:7000", owner(statusOK))
	require.Contains(t, owner(statusUsage, "-world", "Not a world"), "-world: ")
}

// TestDeadLettersOnServers: letters that can be read are published to subscribers and removed.
func TestDeadLettersOnServers(t *testing.T) {
	addrs, delivery := stacktest.Redis(t), stacktest.Fanout(t)
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	defer func() { _ = client.Close() }()
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	log := redisstream.New(store, client)
	id := fence.TileID(rand.Uint64()>>1 | 1)
	payload, _, err := (&stream.Batch{Events: [][]byte{[]byte("event")}}).Encode()
	require.NoError(t, err)
	_, err = store.Commit(t.Context(), fence.Commit{Tile: id, Epoch: 1, Contact: "10.0.0.1:7000", Tick: 1,
		Payload: payload, Install: true})
	require.NoError(t, err)
	chunks, err := log.Read(t.Context(), []stream.Cursor{{Tile: id}})
	require.NoError(t, err)
	entry := chunks[0].Entries[0]
	require.NoError(t, log.DeadLetter(t.Context(), poisonOf(id, &entry)))
	require.NoError(t, log.DeadLetter(t.Context(),
		stream.Poison{Tile: id, Seq: 2, Reason: "unreadable", Fields: map[string]string{"\xff": "\x00"}}))

	listeners := redis.NewClusterClient(redisfence.Options(delivery...))
	defer func() { _ = listeners.Close() }()
	sub, err := redisfanout.New(listeners, nil)
	require.NoError(t, err)
	heard := listen(t, sub, id)
	tilectl := func(line, typed string) (int, string, string) {
		var out, errs bytes.Buffer
		args := append([]string{"-redis", strings.Join(addrs, ","), "-fanout", strings.Join(delivery, ",")},
			strings.Fields(line)...)
		return run(t.Context(), args, strings.NewReader(typed), &out, &errs), out.String(), errs.String()
	}
	status, out, errs := tilectl("deadletters replay "+id.String(), "")
	require.Equal(t, statusFailed, status, "one stays")
	require.Contains(t, errs, "some dead letters are kept")
	require.Regexp(t, ` published `, out)
	waittest.Until(t, func() bool { return len(heard()) == 1 }, waitFor, poll)
	require.Equal(t, entry.Position, heard()[0])
	letters, err := log.DeadLetters(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, letters, 1)
	status, _, _ = tilectl("deadletters drop "+id.String(), "no\n")
	require.Equal(t, statusFailed, status)
	status, _, errs = tilectl("deadletters drop "+id.String(), "yes\n")
	require.Equal(t, statusOK, status, errs)
	letters, err = log.DeadLetters(t.Context(), id)
	require.NoError(t, err)
	require.Empty(t, letters)
	status, _, errs = tilectl("deadletters replay -fanout= "+id.String(), "")
	require.Equal(t, statusUsage, status)
	require.Contains(t, errs, "-fanout is missing")
}
