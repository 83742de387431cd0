package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/redismatch"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestMatchOnServers: a queue of two shards with a ticket in each that has no match, for the reasons that a worker
// gave.
func TestMatchOnServers(t *testing.T) {
	addrs := stacktest.Redis(t)
	client := redis.NewClusterClient(redisfence.Options(addrs...))
	defer func() { _ = client.Close() }()
	store, err := redismatch.New(client, nil)
	require.NoError(t, err)
	require.NoError(t, store.Load(t.Context()))
	queue, pool := stacktest.UniqueName(t), stacktest.UniqueName(t)+"-seats"
	whys := []match.Why{{Reason: match.OutOfWindow, Window: 70, Candidates: 3, Nearest: 120}, {Reason: match.NoSeat}}
	for i, why := range whys {
		shard, id := fmt.Sprint(queue, "/", i), fmt.Sprint("ticket", i)
		_, err := store.Enqueue(t.Context(), shard, match.Ticket{ID: id, Rating: 1500 + i,
			Players: []match.Player{{ID: "ann"}, {ID: "bob"}}}, match.Entry{MaxWait: time.Minute})
		require.NoError(t, err)
		held, err := store.Claim(t.Context(), shard, match.Claim{Worker: "w", Lease: time.Minute, Limit: 10})
		require.NoError(t, err)
		_, err = store.Release(t.Context(), shard, held.Epoch, []match.Unmatched{{Ticket: id, Why: why}})
		require.NoError(t, err)
	}
	_, err = store.Enqueue(t.Context(), queue+"/1", match.Ticket{ID: "gone", Players: []match.Player{{ID: "eve"}}},
		match.Entry{MaxWait: time.Minute})
	require.NoError(t, err)
	_, err = store.Cancel(t.Context(), queue+"/1", "gone")
	require.NoError(t, err)
	_, err = store.Offer(t.Context(), pool, match.Offer{Tile: first, Epoch: 7, Contact: "10.0.0.1:7000", Seats: 4},
		time.Minute)
	require.NoError(t, err)

	tilectl := func(line string) (int, string, string) {
		var out, errs bytes.Buffer
		args := append([]string{"-redis", strings.Join(addrs, ",")}, strings.Fields(line)...)
		status := run(t.Context(), args, strings.NewReader(""), &out, &errs)
		return status, out.String(), errs.String()
	}
	status, out, errs := tilectl("match")
	require.Equal(t, statusOK, status, errs)
	require.Contains(t, out, queue+" ")
	status, out, errs = tilectl("match -json " + queue)
	require.Equal(t, statusOK, status, errs)
	var q queueRow
	require.NoError(t, json.Unmarshal([]byte(out), &q))
	require.Equal(t, queue, q.Queue)
	require.Equal(t, 2, q.Shards)
	require.Equal(t, []uint64{3, 2, 1, 2}, []uint64{q.Created, q.Waiting, q.Cancelled, q.Workers})

	status, out, errs = tilectl("match tickets " + queue)
	require.Equal(t, statusOK, status, errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 3, "the cancelled one does not wait")
	require.Regexp(t, `^ticket0 +2 +1500 +waiting +\S+s +\S+ \S+Z +the nearest of 3 others is 120 points away; `+
		`the window is \+-70 and grows$`, lines[1])
	require.Regexp(t, `^ticket1 +2 +1501 +waiting .* a match was found, and no tile has enough free seats$`, lines[2])
	status, out, errs = tilectl("match tickets -json " + queue)
	require.Equal(t, statusOK, status, errs)
	var r ticketRow
	require.NoError(t, json.NewDecoder(strings.NewReader(out)).Decode(&r))
	require.Equal(t, queue+"/0", r.Shard)
	require.Equal(t, whys[0], r.Why)

	status, out, errs = tilectl("match seats " + pool)
	require.Equal(t, statusOK, status, errs)
	require.Regexp(t, pool+` +`+first.String()+` +serving +10\.0\.0\.1:7000 +7 +4 +0\n`, out)

	for line, want := range map[string]int{"match tickets": statusUsage, "match tickets a b": statusUsage,
		"match tickets nowhere": statusFailed, "match nowhere": statusFailed} {
		status, _, errs = tilectl(line)
		require.Equal(t, want, status, line)
		require.NotEmpty(t, errs, line)
	}
}
