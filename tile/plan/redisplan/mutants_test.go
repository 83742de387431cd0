package redisplan_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/plantest"
	"github.com/tilefence/tilefence/tile/plan"
	"github.com/tilefence/tilefence/tile/plan/redisplan"
)

// mutant is the library with an error in it, and a test of the contract that must notice.
type mutant struct {
	name, test string
	edits      []string
}

var mutants = []mutant{
	{"none", "", nil},
	{"claimNotCompared", "LostClaim", []string{
		"r and r[STATE] == RUNNING and r[WORKER] == worker and r[ATTEMPT] == tonumber(attempt)", "r"}},
	{"attemptNotCompared", "LostClaim", []string{" and r[ATTEMPT] == tonumber(attempt)", ""}},
	{"takingDeletesANewer", "TakingCannotDeleteANewer", []string{
		"local is = a and a[A_ID] == args[i + 1]", "local is = a"}},
	{"lostUsageStaysLost", "UsageOfWhatTheStoreLost", []string{"not (is and a[A_MODEL]) then", "false then"}},
	{"noGuardOfFlight", "OneInFlight", []string{"has[entity] = r and {flying[i], r}", ""}},
	{"staleOwnerServed", "StaleOwner", []string{"if known > epoch then", "if false then"}},
	{"staleAnswerTaken", "TakeOver", []string{"if tonumber(a[A_EPOCH]) < epoch then", "if false then"}},
	{"notAdopted", "TakeOver", []string{"if r[STATE] ~= RUNNING and r[EPOCH] ~= epoch then", "if false then"}},
	{"usageOutsideTheStep", "UsageOnce", []string{
		"    if not seen[e[1]] and claimed(r, args[1], e[2]) then",
		"    redis.call('XADD', shard .. ':usage', '*', 'r', e[1], 't', '1', 'e', '', 'p', '', 'm', e[6],\n" +
			"      'i', e[7], 'o', e[8], 'c', e[9], 'at', '0')\n    if not seen[e[1]] and claimed(r, args[1], e[2]) then"}},
	{"leaseForEver", "LeaseOver", []string{"local due = redis.call('ZRANGE', shard .. ':due', '-inf', at,",
		"local due = redis.call('ZRANGE', shard .. ':due', '-inf', 0,"}},
	{"promotedTwice", "APlayerTakesThePlace", []string{"redis.call('HDEL', keys[1], old[1])", ""}},
	{"deadWithoutNotice", "LastLeaseOver", []string{
		"answer(shard, id, r, DIED_KIND, at + ANSWER_TTL, ANSWER_TTL, '')", ""}},
	{"neverExpires", "Expired", []string{"elseif a[A_EXPIRES] <= at then", "elseif false then"}},
}

const envMutant = "TILEFENCE_TEST_PLAN_MUTANT"

// TestMutants: the contract notices each error, in a process of its own; and passes without one.
func TestMutants(t *testing.T) {
	stacktest.Redis(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(self, "-test.run", "^TestMutant$/^"+m.test+"$")
			if m.test == "" {
				cmd = exec.Command(self, "-test.run", "^TestMutant$")
			}
			cmd.Env = append(os.Environ(), envMutant+"="+m.name)
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
	client := newClient(t, stacktest.Redis(t))
	function := strings.ToLower("mutant_" + stacktest.UniqueName(t)[20:])
	for _, m := range mutants {
		if m.name != name {
			continue
		}
		s, err := redisplan.New(client, nil)
		require.NoError(t, err)
		code := s.Mutant(function, m.edits...)
		require.NoError(t, client.ForEachMaster(t.Context(), func(ctx context.Context, node *redis.Client) error {
			return node.FunctionLoad(ctx, code).Err()
		}))
		t.Cleanup(func() {
			_ = client.ForEachMaster(context.Background(), func(ctx context.Context, node *redis.Client) error {
				return node.FunctionDelete(ctx, function+"_v1").Err()
			})
		})
		plantest.Run(t, func(t *testing.T) plan.Store {
			s, err := redisplan.New(client, &redisplan.Config{Name: storeName(t)})
			require.NoError(t, err)
			s.Mutant(function)
			return s
		})
	}
}
