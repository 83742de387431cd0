package redisfence

import (
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

func TestReplicasListed(t *testing.T) {
	t.Parallel()
	const others = `
b1 127.0.0.1:7002@17002 master - 0 1700000000000 2 connected 5461-10922
c1 127.0.0.1:7003@17003,host myself,master - 0 1700000000000 3 connected 10923-16383
`
	for _, test := range []struct {
		name, replicas string
		want, ignoring int // counted, and with IgnoreFailedReplicas
	}{
		{"none", "", 0, 0},
		{"one", "r1 127.0.0.1:7004@17004 slave c1 0 1700000000000 3 connected\n", 1, 1},
		{"another master's", "r1 127.0.0.1:7004@17004 slave b1 0 1700000000000 3 connected\n", 0, 0},
		{"silent, not yet failed",
			"r1 127.0.0.1:7004@17004 slave,fail? c1 1700000000000 1700000000000 3 disconnected\n", 1, 1},
		{"failed", "r1 127.0.0.1:7004@17004 slave,fail c1 1700000000000 1700000000000 3 disconnected\n", 1, 0},
		{"two of three live", "r1 :0@0 slave c1 0 0 3 connected\n" +
			"r2 :0@0 slave,fail,noaddr c1 0 0 3 connected\nr3 :0@0 slave c1 0 0 3 connected\n", 3, 2},
	} {
		for _, text := range []string{others + test.replicas, test.replicas + others} {
			n, err := replicasListed(text, false, false)
			require.NoError(t, err, test.name)
			require.Equal(t, test.want, n, test.name)
			n, err = replicasListed(text, true, false)
			require.NoError(t, err, test.name)
			require.Equal(t, test.want, n, test.name+", promoted")
			n, err = replicasListed(text, false, true)
			require.NoError(t, err, test.name)
			require.Equal(t, test.ignoring, n, test.name)
		}
	}
	_, err := replicasListed("r1 127.0.0.1:7004@17004 myself,slave c1 0 0 3 connected\n", false, false)
	require.Error(t, err)
	_, err = replicasListed("", false, false)
	require.Error(t, err)
}

// TestReplicasLeftBehind: what is listed under a master that has failed may become a promoted node's own.
func TestReplicasLeftBehind(t *testing.T) {
	t.Parallel()
	const cluster = `
b1 127.0.0.1:7002@17002 master - 0 1700000000000 2 connected 5461-10922
b2 127.0.0.1:7005@17005 slave b1 0 1700000000000 2 connected
c1 127.0.0.1:7003@17003 myself,master - 0 1700000000000 9 connected 10923-16383
`
	for name, lines := range map[string]string{
		"failed": "a1 127.0.0.1:7001@17001 master,fail - 1 1 3 disconnected\n" +
			"r1 :7004@17004 slave,fail a1 1 1 3 disconnected\n",
		"alive": "a1 127.0.0.1:7001@17001 master,fail - 1 1 3 disconnected\n" +
			"r1 :7004@17004 slave a1 0 1 3 connected\n",
		"master is forgotten": "r1 127.0.0.1:7004@17004 slave,fail a1 1 1 3 disconnected\n",
		"master is a replica": "a1 127.0.0.1:7001@17001 slave b1 0 1 2 connected\n" +
			"r1 :7004@17004 slave a1 0 1 3 connected\n",
	} {
		n, err := replicasListed(cluster+lines, true, false)
		require.NoError(t, err, name)
		require.Equal(t, 1, n, name)
		n, err = replicasListed(cluster+lines, false, false)
		require.NoError(t, err, name)
		require.Zero(t, n, "%s: a master that was never promoted inherits nobody", name)
	}
}

// TestReplicasCounted: what a node answers to WAIT and to the question for its replicas, and what that confirms. A
// write is confirmed if as many replicas have it as are counted.
func TestReplicasCounted(t *testing.T) {
	t.Parallel()
	const alone = "a1 127.0.0.1:7001@17001 myself,master - 0 0 1 connected 0-16383\n"
	const down = alone + "r1 127.0.0.1:7004@17004 slave,fail a1 1 1 1 disconnected\n"
	const up = alone + "r1 127.0.0.1:7004@17004 slave a1 0 1 1 connected\n"
	failed := errors.New("UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)")
	for name, test := range map[string]struct {
		waited          int
		waitErr, askErr error
		connected       string
		reported        string // by a replica
		nodes           string
		had             int
		confirmed, have int
	}{
		"confirmed":                   {1, nil, nil, "1", "7", up, 1, 1, 1},
		"a replica is down":           {0, nil, nil, "0", "7", down, 0, 0, 1},
		"a replica has gone":          {0, nil, nil, "0", "7", alone, 1, 0, 1},
		"a replica is not listed yet": {1, nil, nil, "1", "7", alone, 0, 1, 1},
		"a replica is empty yet":      {1, nil, nil, "1", "0", up, 0, 0, 1},
		"WAIT failed":                 {0, failed, nil, "1", "7", up, 1, 0, 1},
		"WAIT failed, none was known": {0, failed, nil, "0", "7", alone, 0, 0, 1},
		"the count failed":            {1, nil, failed, "1", "7", up, 1, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:0"}})
			defer func() { _ = client.Close() }()
			n := &node{store: &store{client: client}}
			wait, question := redis.NewCmd(t.Context(), "wait"), n.store.replicaQuestion(t.Context())
			wait.SetVal(int64(test.waited))
			wait.SetErr(test.waitErr)
			question[0].SetVal("connected_slaves:" + test.connected + "\r\nmaster_replid2:0000\r\n" +
				"slave0:ip=127.0.0.1,port=7004,state=online,offset=" + test.reported + ",lag=0\r\n")
			question[0].SetErr(test.askErr)
			question[1].SetVal(test.nodes)
			confirmed, have := n.judge(t.Context(), wait, question, true, test.had)
			require.Equal(t, test.confirmed, confirmed)
			require.Equal(t, test.have, have)
		})
	}
}

func TestMostWanted(t *testing.T) {
	t.Parallel()
	const all = fence.AllReplicas
	for _, test := range []struct {
		replicas            []int
		have, minimum, want int
	}{
		{[]int{1, 3, 2}, 0, 0, 3},
		{[]int{1, all, 1}, 2, 0, 2},
		{[]int{3, all}, 2, 0, 3},
		{[]int{all, all}, 0, 0, 0},
		{[]int{all, 1}, 0, 2, 2},
		{[]int{1}, 0, 2, 1},
	} {
		s := store{cfg: Config{MinReplicas: test.minimum}}
		var set []*request
		for _, n := range test.replicas {
			set = append(set, &request{replicas: n})
		}
		require.Equal(t, test.want, s.mostWanted(set, test.have), "%+v", test)
	}
}
