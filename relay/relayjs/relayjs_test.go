package relayjs_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/relay/relayjs"
)

// oldestNode is the first version of node whose test runner has timers that the tests move.
const oldestNode = 20

// TestUnderNode runs client.test.js.
func TestUnderNode(t *testing.T) {
	version, err := exec.Command("node", "--version").Output()
	if err != nil {
		t.Skipf("node is not installed: %v", err)
	}
	m := regexp.MustCompile(`^v(\d+)\.`).FindSubmatch(version)
	require.NotNil(t, m, "%s", version)
	major, err := strconv.Atoi(string(m[1]))
	require.NoError(t, err)
	if major < oldestNode {
		t.Skipf("node %s is older than %d", version, oldestNode)
	}
	out, err := exec.CommandContext(t.Context(), "node", "--test").CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `(?m)^# pass [1-9]`, string(out))
}

// A page is served its client.
func Example() {
	mux := http.NewServeMux()
	mux.Handle("GET /relay/", http.StripPrefix("/relay/", http.FileServerFS(relayjs.Files)))
	for _, path := range []string{"/relay/client.js", "/relay/messages.js"} {
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		fmt.Println(path, w.Code, w.Header().Get("Content-Type"))
	}
	// Output:
	// /relay/client.js 200 text/javascript; charset=utf-8
	// /relay/messages.js 200 text/javascript; charset=utf-8
}
