package pgfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/wait/waittest"
)

const (
	stormTiles   = 50_000
	stormCallers = 4_000
	rawSet       = 500
	leastSamples = 3_000 // or thirty would decide on a p99
)

// BenchmarkMintStorm has many concurrent callers that each mint an epoch with one call, beside what the
// database does bare: one row a transaction, and 500 rows a statement; and beside etcd. Everything is durable.
// x-one-row, x-500-rows and x-etcd are mints over those figures of the same run.
//
// etcd is one node, as it comes, with an fsync before each answer. Each of its callers replaces a key of its
// own if the key is at the revision the caller has seen, so no call loses. They go through etcd's own gateway,
// as JSON over HTTP/1.1, because its Go client is no dependency of this module. That costs etcd something: it
// turns each call into one of gRPC, on the processors it runs on itself. By its own client it is faster.
func BenchmarkMintStorm(b *testing.B) {
	var oneRow, manyRows, etcd float64
	bare := func(b *testing.B) float64 {
		rate := float64(b.N) / b.Elapsed().Seconds()
		b.ReportMetric(rate, "mints/s")
		return rate
	}
	report := func(b *testing.B) {
		rate := bare(b)
		if oneRow > 0 && manyRows > 0 { // not left out by -bench
			b.ReportMetric(rate/oneRow, "x-one-row")
			b.ReportMetric(rate/manyRows, "x-500-rows")
		}
		if etcd > 0 { // nor not installed
			b.ReportMetric(rate/etcd, "x-etcd")
		}
	}
	b.Run("raw-one-row", func(b *testing.B) {
		g := newGroundOf(b, stormTiles, nil)
		callers(b, benchConns, func(n int64) error { return g.update(b.Context(), n%stormTiles+1) })
		oneRow = bare(b)
	})
	b.Run("raw-500-rows", func(b *testing.B) {
		g := newGroundOf(b, stormTiles, nil)
		var next atomic.Int64
		b.ResetTimer()
		callersUntil(b, 8, func() (bool, error) {
			from := next.Add(rawSet) - rawSet
			if from >= int64(b.N) {
				return false, nil
			}
			return true, g.updateMany(b.Context(), from)
		})
		manyRows = bare(b)
	})
	b.Run("etcd-compare-and-swap", func(b *testing.B) {
		keys := newEtcdKeys(b)
		callers(b, etcdCallers, func(int64) error {
			k := <-keys
			defer func() { keys <- k }()
			return k.swap(b.Context())
		})
		etcd = bare(b)
	})
	promote := func(g *ground) func(n int64) error {
		return func(n int64) error {
			_, err := g.a.Promote(context.Background(), benchClaim(n%stormTiles+1, fence.Epoch(n/stormTiles+1)))
			return err
		}
	}
	b.Run("promote", func(b *testing.B) {
		callers(b, stormCallers, promote(newGroundOf(b, stormTiles, nil)))
		report(b)
	})
	b.Run("claim-new", func(b *testing.B) {
		g := newGroundOf(b, 1, nil)
		callers(b, stormCallers, func(n int64) error {
			_, err := g.a.Claim(context.Background(), benchClaim(n+2, 0))
			return err
		})
		report(b)
	})
	b.Run("claim-many", func(b *testing.B) {
		g := newGroundOf(b, 1, nil)
		claims := make([]fence.Claim, b.N)
		for i, n := range rand.Perm(b.N) {
			claims[i] = benchClaim(int64(n)+2, 0)
		}
		b.ResetTimer()
		for _, r := range g.a.ClaimMany(b.Context(), claims) {
			require.NoError(b, r.Err)
		}
		report(b)
	})
}

// updateMany is the bare statement of 500 rows.
func (g *ground) updateMany(ctx context.Context, from int64) error {
	tiles, contacts, ids := make([]int64, rawSet), make([]string, rawSet), make([]pgtype.UUID, rawSet)
	for i := range tiles {
		tiles[i], contacts[i] = (from+int64(i))%stormTiles+1, "b:1"
		ids[i] = pgtype.UUID{Bytes: fence.NewClaimID(), Valid: true}
	}
	_, err := g.pool.Exec(ctx, "UPDATE "+pgfence.DefaultTable+
		` t SET epoch = t.epoch + 1, contact = v.contact, claim = v.claim
		FROM unnest($1::bigint[], $2::text[], $3::uuid[]) v (tile, contact, claim) WHERE t.tile = v.tile AND t.epoch >= 1`, tiles, contacts, ids)
	return err
}

// callers makes b.N calls, numbered from 0, by so many at once.
func callers(b *testing.B, count int, call func(n int64) error) {
	b.Helper()
	var next atomic.Int64
	b.ResetTimer()
	callersUntil(b, count, func() (bool, error) {
		n := next.Add(1) - 1
		if n >= int64(b.N) {
			return false, nil
		}
		return true, call(n)
	})
}

func callersUntil(b *testing.B, count int, call func() (more bool, err error)) {
	b.Helper()
	var wg sync.WaitGroup
	for range count {
		wg.Go(func() {
			for more := true; more; {
				var err error
				if more, err = call(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
}

// BenchmarkLoneMint is one caller's latency, call by call beside a bare round trip: p50 and p99 of both, and
// the ratio of the latter. However short the run is to be, it makes leastSamples of each.
func BenchmarkLoneMint(b *testing.B) {
	b.Run("claim-new", func(b *testing.B) {
		g := newGround(b)
		lone(b, g, func(n int64) error {
			_, err := g.a.Claim(context.Background(), benchClaim(benchTiles+n+1, 0))
			return err
		})
	})
	b.Run("promote", func(b *testing.B) {
		g := newGroundOf(b, benchTiles+max(b.N, leastSamples), nil)
		lone(b, g, func(n int64) error {
			_, err := g.a.Promote(context.Background(), benchClaim(benchTiles+n+1, 1))
			return err
		})
	})
}

// lone alternates bare updates of the first tiles with calls.
func lone(b *testing.B, g *ground, call func(n int64) error) {
	b.Helper()
	samples := max(b.N, leastSamples)
	raw, ours := make([]time.Duration, samples), make([]time.Duration, samples)
	var total time.Duration
	b.ResetTimer()
	for n := range samples {
		began := time.Now()
		require.NoError(b, g.update(b.Context(), int64(n%benchTiles)+1))
		between := time.Now()
		require.NoError(b, call(int64(n)))
		raw[n], ours[n] = between.Sub(began), time.Since(between)
		total += ours[n]
	}
	b.StopTimer()
	b.ReportMetric(float64(total.Nanoseconds())/float64(samples), "ns/op") // of ours alone, and of all samples
	slices.Sort(raw)
	slices.Sort(ours)
	at := func(sorted []time.Duration, percent int) float64 {
		return float64(sorted[len(sorted)*percent/100].Nanoseconds())
	}
	b.ReportMetric(at(raw, 50), "raw-p50-ns")
	b.ReportMetric(at(ours, 50), "p50-ns")
	b.ReportMetric(at(raw, 99), "raw-p99-ns")
	b.ReportMetric(at(ours, 99), "p99-ns")
	b.ReportMetric(at(ours, 99)/at(raw, 99), "x-raw-p99")
}

const (
	etcdProgram = "/usr/bin/etcd"
	etcdCallers = 256
)

// startEtcd starts an etcd of one node for this benchmark alone, with its files in a temporary directory, and
// returns its URL. It ends with the benchmark.
func startEtcd(b *testing.B) string {
	b.Helper()
	if _, err := exec.LookPath(etcdProgram); err != nil {
		b.Skipf("%s is not installed: apt-get install etcd-server, and disable its service", etcdProgram)
	}
	client, peer := freeURL(b), freeURL(b)
	var log bytes.Buffer
	server := exec.Command(etcdProgram, "--name", "one", "--data-dir", filepath.Join(b.TempDir(), "etcd"),
		"--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "one="+peer,
		"--logger", "zap", "--log-level", "error")
	server.Env = []string{} // or ETCD_… variables would change it
	server.Stdout, server.Stderr = &log, &log
	require.NoError(b, server.Start())
	b.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if b.Failed() {
			b.Logf("etcd: %s", log.String())
		}
	})
	waittest.Until(b, func() bool {
		answer, err := http.Get(client + "/health")
		if err != nil {
			return false
		}
		defer func() { _ = answer.Body.Close() }()
		return answer.StatusCode == http.StatusOK
	}, 20*time.Second, 20*time.Millisecond)
	return client
}

// freeURL is an unused address.
func freeURL(b *testing.B) string {
	b.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b, err)
	require.NoError(b, listener.Close())
	return "http://" + listener.Addr().String()
}

// etcdKey is a key that one caller at a time writes.
type etcdKey struct {
	client   *http.Client
	url      string
	name     []byte
	revision int64 // of its last write; zero while there is none
}

// newEtcdKeys starts an etcd and returns a key for each caller, written once, so that every connection is
// there when the clock starts.
func newEtcdKeys(b *testing.B) chan *etcdKey {
	b.Helper()
	url := startEtcd(b) + "/v3/kv/txn"
	transport := &http.Transport{MaxIdleConns: etcdCallers, MaxIdleConnsPerHost: etcdCallers,
		MaxConnsPerHost: etcdCallers}
	b.Cleanup(transport.CloseIdleConnections)
	keys := make(chan *etcdKey, etcdCallers)
	var writes sync.WaitGroup
	for i := range etcdCallers {
		k := &etcdKey{client: &http.Client{Transport: transport}, url: url, name: fmt.Appendf(nil, "tile/%d", i)}
		writes.Go(func() {
			if err := k.swap(b.Context()); err != nil {
				b.Error(err)
			}
			keys <- k
		})
	}
	writes.Wait()
	return keys
}

// swap writes the key's value if the key is at the revision that was last seen, and fails if it is not.
func (k *etcdKey) swap(ctx context.Context) error {
	type object map[string]any
	body, err := json.Marshal(object{
		"compare": []object{{"key": k.name, "target": "MOD", "mod_revision": k.revision, "result": "EQUAL"}},
		"success": []object{{"request_put": object{"key": k.name, "value": []byte("b:1")}}},
	})
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, k.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body) // to the end, or the connection is not kept
	if err != nil {
		return err
	}
	var answer struct {
		Succeeded bool `json:"succeeded"`
		Header    struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("etcd: %s: %q: %w", response.Status, text, err)
	}
	if !answer.Succeeded {
		return fmt.Errorf("etcd did not swap key %s at revision %d: %s: %s", k.name, k.revision, response.Status, text)
	}
	k.revision = answer.Header.Revision
	return nil
}
