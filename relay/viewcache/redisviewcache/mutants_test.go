package redisviewcache_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/viewcachetest"
	"github.com/tilefence/tilefence/internal/viewstore"
	"github.com/tilefence/tilefence/relay/viewcache/redisviewcache"
)

// mutants are errors in the library, and a test of the contract that must notice each.
var mutants = []struct {
	name, test string
	edits      []string
}{
	{"none", "", nil},
	{"positionsNotCompared", "WhatIsOlderIsRefused", []string{
		"if e ~= ne then return e < ne end\n  if s ~= ns then return s < ns end", ""}},
	{"sequencesFirst", "WhatIsOlderIsRefused", []string{"if e ~= ne then return e < ne end\n", ""}},
	{"tokensNotCompared", "WhatIsOlderIsRefused", []string{"return tonumber(token) <= entry.token", "return false"}},
	{"noLock", "OneHasTheLock", []string{"redis.call('SET', keys[5], token, 'NX', 'PX', lease)", "true"}},
	{"oneLockForAGroup", "OneHasTheLock", []string{"keys[5]", "(keys[1] .. ':lock')"}},
	{"lockWithoutEnd", "ALockEndsWithItsHolder", []string{"token, 'NX', 'PX', lease)", "token, 'NX')"}},
	{"renewedByAnyone", "ALockEndsWithItsHolder", []string{
		"if redis.call('GET', keys[5]) ~= args[1] then return 0 end", ""}},
	{"anothersLockEnded", "APutEndsItsOwnLockOnly", []string{
		"if redis.call('GET', keys[5]) == token then redis.call('DEL', keys[5]) end", "redis.call('DEL', keys[5])"}},
	{"lockUnseen", "ALockIsOfWhatWasSeen", []string{
		"return found(keys, tile, entry, clock, {'changed'})", ""}},
	{"ageNotRenewed", "ConfirmationRenewsTheAge", []string{
		"note(keys, channel, tile, at, entry.base, clock, text(math.max", "note(keys, channel, tile, at, entry.base, " +
			"tonumber(entry.stamp), text(math.max"}},
	{"baseNotLookedFor", "ABaseIsStoredOnce", []string{"base ~= ORIGIN and redis.call('HEXISTS'",
		"false and redis.call('HEXISTS'"}},
	{"noGrace", "AnOldVersionStaysForItsGrace", []string{
		"local ends = clock + grace * 1000", "local ends = clock - 1"}},
	{"nothingReclaimed", "AnOldVersionStaysForItsGrace", []string{
		"  reclaim(keys, clock)\n  local entry = newest(keys, tile)\n  if entry and entry.at == at",
		"  local entry = newest(keys, tile)\n  if entry and entry.at == at"}},
	{"accountForgotten", "AnOldVersionStaysForItsGrace", []string{
		"then redis.call('HINCRBY', keys[1], '#bytes', -size - COST) end", "then end"}},
	{"costKept", "AnOldVersionStaysForItsGrace", []string{"-size - COST)", "-size)"}},
	{"useNotNoted", "TheBudgetHolds", []string{"redis.call('ZADD', keys[3], 'XX', text(clock), tile)", ""}},
	{"noBudget", "TheBudgetHolds", []string{"+ need <= share", "+ need <= share * 100"}},
	{"largeStored", "TheBudgetHolds", []string{"if need > share / 4 or", "if"}},
	{"newestFirst", "OldVersionsGoFirst", []string{"if old[1] and old[1] ~= '#' then", "if false then"}},
	{"silent", "ANewVersionIsAnnounced", []string{"redis.call('SPUBLISH', channel, ", "table.concat({}, "}},
	{"anythingDropped", "WhatIsDroppedIsGone", []string{"if entry and entry.at == args[2] then", "if entry then"}},
}

// Of a process with a mutant: its name, and the server's address.
const (
	envMutant       = "TILEFENCE_TEST_VIEWS_MUTANT"
	envMutantServer = "TILEFENCE_TEST_VIEWS_MUTANT_SERVER"
)

// TestMutants: the contract notices each error, in a process of its own; and passes without one.
func TestMutants(t *testing.T) {
	t.Parallel()
	stack := stacktest.Start(t, devstack.Config{Parts: []devstack.Part{devstack.Views}})
	self, err := os.Executable()
	require.NoError(t, err)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			cmd := exec.Command(self, "-test.run", "^TestMutant$/^"+m.test+"$")
			if m.test == "" {
				cmd = exec.Command(self, "-test.run", "^TestMutant$")
			}
			cmd.Env = append(os.Environ(), envMutant+"="+m.name, envMutantServer+"="+stack.ViewsAddr)
			if m.test != "" { // it is expected to fail
				cmd.Env = append(cmd.Env, "TILEFENCE_PATIENCE=1")
			}
			out, err := cmd.CombinedOutput()
			if m.test == "" {
				require.NoError(t, err, "%s", out)
				return
			}
			var failed *exec.ExitError
			require.ErrorAs(t, err, &failed, "not noticed: %s", out)
			require.Contains(t, string(out), "--- FAIL: TestMutant/"+m.test)
			require.NotContains(t, string(out), "panic:")
		})
	}
}

// TestMutant is the contract on one mutant; it runs only for TestMutants.
func TestMutant(t *testing.T) {
	name := os.Getenv(envMutant)
	if name == "" {
		t.Skip("run by TestMutants")
	}
	for _, m := range mutants {
		if m.name == name {
			require.Equal(t, m.edits != nil, redisviewcache.Mutate(m.edits...), "the edit fits the source")
		}
	}
	client := connect(t, os.Getenv(envMutantServer))
	viewcachetest.Run(t, func(t *testing.T, limits *viewstore.Limits) viewstore.Store {
		return open(t, client, limits)
	})
}
