package devstack

import (
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSweepRemovesOnlyWhatNobodyHolds(t *testing.T) {
	parent := t.TempDir()
	held, err := makeOwnDir(parent)
	require.NoError(t, err)
	left, err := makeOwnDir(parent)
	require.NoError(t, err)
	fresh, err := makeOwnDir(parent)
	require.NoError(t, err)
	foreign := filepath.Join(parent, "something-else")
	require.NoError(t, os.Mkdir(foreign, 0o700))
	unlocked := filepath.Join(parent, "tilefence-stack-new")
	require.NoError(t, os.Mkdir(unlocked, 0o700))

	longAgo := time.Now().Add(-time.Hour)
	for _, dir := range []*ownDir{held, left} {
		require.NoError(t, os.Chtimes(filepath.Join(dir.path, lockName), longAgo, longAgo))
	}
	require.NoError(t, left.lock.Close())
	require.NoError(t, fresh.lock.Close())

	sweep(parent)
	require.DirExists(t, held.path, "its stack runs")
	require.DirExists(t, fresh.path, "its stack may be about to lock it")
	require.DirExists(t, unlocked, "its stack may be about to make the lock")
	require.DirExists(t, foreign)
	require.NoDirExists(t, left.path)

	require.NoError(t, held.remove())
	require.NoDirExists(t, held.path)
}

func TestPortsAreFreeAndGivenOnce(t *testing.T) {
	var ports portPicker
	seen := make(map[int]bool)
	for range 200 {
		port, err := ports.pick(defaultHost, busOffset)
		require.NoError(t, err)
		require.False(t, seen[port])
		seen[port] = true
		require.GreaterOrEqual(t, port, lowestPort)
		require.Less(t, port, highestPort)
	}
}

func TestAPortWithItsBusPortTakenIsNotFree(t *testing.T) {
	var ports portPicker
	port, err := ports.pick(defaultHost, busOffset)
	require.NoError(t, err)
	require.True(t, allFree(defaultHost, port, []int{busOffset}))
	listener, err := net.Listen("tcp", hostPort(defaultHost, port+busOffset))
	require.NoError(t, err)
	defer func() { require.NoError(t, listener.Close()) }()
	require.False(t, allFree(defaultHost, port, []int{busOffset}))
	require.True(t, allFree(defaultHost, port, nil))
}

func TestMembersAreRead(t *testing.T) {
	const answer = "" +
		"bb 127.0.0.1:2@12 myself,master - 0 0 2 connected 5461-10922 16000\n" +
		"aa 127.0.0.1:1@11 slave bb 0 1 2 connected\n" +
		"cc 127.0.0.1:3@13 master,fail? - 0 1 3 connected\n" +
		"\n"
	all := parseMembers(answer)
	require.Equal(t, []member{
		{id: "bb", addr: "127.0.0.1:2", flags: []string{"myself", "master"}, master: "-", slots: true},
		{id: "aa", addr: "127.0.0.1:1", flags: []string{"slave"}, master: "bb"},
		{id: "cc", addr: "127.0.0.1:3", flags: []string{"master", "fail?"}, master: "-"},
	}, all)
	require.True(t, all[0].serves())
	require.False(t, all[2].serves())
	require.True(t, all[2].is("fail?"))
}

func TestSlotsAreCoveredOnce(t *testing.T) {
	shape := clusterShape{masters: 3}
	next := 0
	for master := range shape.masters {
		first, last := shape.slots(master)
		require.Equal(t, next, first)
		next = last + 1
	}
	require.Equal(t, totalSlots, next)
}

func TestTheNewestPostgresIsTaken(t *testing.T) {
	require.Equal(t, "/usr/lib/postgresql/16/bin/initdb", newest([]string{
		"/usr/lib/postgresql/15/bin/initdb",
		"/usr/lib/postgresql/16/bin/initdb",
		"/usr/lib/postgresql/9/bin/initdb",
	}))
}

func TestCommitsWaitForTheDiskUnlessToldOtherwise(t *testing.T) {
	require.Contains(t, postgresArgs("data", "", "127.0.0.1", 1, false), "fsync=on")
	require.Contains(t, postgresArgs("data", "", "127.0.0.1", 1, true), "fsync=off")
}
