package main

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestOnServers runs the program as its user does.
func TestOnServers(t *testing.T) {
	addrs, postgres, dynamo := stacktest.Redis(t), stacktest.PostgresDB(t), stacktest.DynamoDB(t)
	pool, err := pgxpool.New(t.Context(), postgres)
	require.NoError(t, err)
	defer pool.Close()
	authority, err := pgfence.New(pool, nil)
	require.NoError(t, err)
	require.NoError(t, authority.Migrate(t.Context()))
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	defer func() { _ = client.Close() }()
	store, err := redisfence.New(client, nil)
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))

	id := fence.TileID(rand.Uint64()>>1 | 1)
	grant, err := authority.Claim(t.Context(), fence.Claim{Tile: id, Contact: "10.0.0.1:7000", ID: fence.NewClaimID()})
	require.NoError(t, err)
	_, err = store.Rebase(t.Context(), fence.Rebase{Tile: id, Epoch: grant.Epoch, Contact: "10.0.0.1:7000", Seq: 1, Blob: []byte("state")})
	require.NoError(t, err)

	tilectl := func(line string) (int, string, string) {
		var out, errs bytes.Buffer
		args := append([]string{"-redis", strings.Join(addrs, ","), "-postgres", postgres, "-dynamodb", dynamo,
			"-checkpoints", stacktest.UniqueName(t)}, strings.Fields(line)...)
		status := run(t.Context(), args, &out, &errs)
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
}
