package pgfence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/wait/waittest"
)

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
