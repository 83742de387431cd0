package spectator_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/examples/battle/spectator"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// canned is an API of fixed answers.
type canned struct {
	status statuspoller.Status
	events []statuspoller.Event
	after  uint64
	taken  []fence.TileID
	refuse error

	mu sync.Mutex // guards what a page asks for
}

func (c *canned) Status() statuspoller.Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *canned) Events(after uint64) []statuspoller.Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.after = after
	return slices.DeleteFunc(slices.Clone(c.events), func(e statuspoller.Event) bool { return e.ID <= after })
}

func (c *canned) TakeOver(_ context.Context, tile fence.TileID) error {
	c.taken = append(c.taken, tile)
	return c.refuse
}

func serve(t *testing.T, api spectator.API) (*httptest.Server, []fence.TileID) {
	tiles := flower(t, 37.77, -122.42)[:2]
	s := httptest.NewServer(spectator.Handler(newWorld(t, tiles...), api))
	t.Cleanup(s.Close)
	return s, tiles
}

// ask sends a request and returns the answer with its body in out, decoded unless that is a string; nil drops it.
func ask(t *testing.T, method, url string, out any, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(method, url, nil)
	require.NoError(t, err)
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	if text, ok := out.(*string); ok {
		*text = string(body)
	} else if out != nil {
		require.Equal(t, "application/json", res.Header.Get("Content-Type"))
		require.NoError(t, json.Unmarshal(body, out), "%s", body)
	}
	return res
}

// refused sends a request that is refused with a status, and returns why.
func refused(t *testing.T, status int, method, url string, header ...string) string {
	t.Helper()
	var why string
	assert.Equal(t, status, ask(t, method, url, &why, header...).StatusCode, url)
	assert.NotEmpty(t, why, url)
	return why
}

func TestBadRequests(t *testing.T) {
	api := &canned{}
	s, tiles := serve(t, api)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"POST", "/api/world", 405},
		{"DELETE", "/api/status", 405},
		{"GET", "/api/takeover?tile=" + tiles[0].String(), 405},
		{"POST", "/api/takeover", 400},
		{"POST", "/api/takeover?tile=85283083FFFFFFF", 400},
		{"POST", "/api/takeover?tile=../../etc", 400},
		{"POST", "/api/takeover?tile=1", 404},
		{"GET", "/api/status?after=-1", 400},
		{"GET", "/api/nothing", 404},
	} {
		refused(t, c.status, c.method, s.URL+c.path)
	}
	assert.Equal(t, "POST", ask(t, "GET", s.URL+"/api/takeover", nil).Header.Get("Allow"))
	assert.Empty(t, api.taken)
}

func TestTakeOver(t *testing.T) {
	api := &canned{}
	s, tiles := serve(t, api)
	url := s.URL + "/api/takeover?tile=" + tiles[1].String()
	assert.Equal(t, http.StatusAccepted, ask(t, "POST", url, nil).StatusCode)
	assert.Equal(t, tiles[1:], api.taken)

	api.refuse = errors.New("no other host is alive")
	assert.Equal(t, "no other host is alive\n", refused(t, http.StatusConflict, "POST", url))
}

func TestTakeOverIsForThisPageOnly(t *testing.T) {
	api := &canned{}
	s, tiles := serve(t, api)
	url := s.URL + "/api/takeover?tile=" + tiles[0].String()
	for _, header := range [][]string{
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "http://elsewhere.example"},
	} {
		refused(t, http.StatusForbidden, "POST", url, header...)
	}
	assert.Empty(t, api.taken)
	assert.Equal(t, http.StatusAccepted, ask(t, "POST", url, nil, "Sec-Fetch-Site", "same-origin").StatusCode)
	assert.Equal(t, http.StatusAccepted, ask(t, "POST", url, nil, "Origin", s.URL).StatusCode)
}

func TestStatusCarriesTheEventsAfter(t *testing.T) {
	api := &canned{status: statuspoller.Status{At: 1, Commits: 14,
		Tiles: []statuspoller.TileStatus{{Tile: 7, Owner: "a",
			Epoch: 3}}}}
	s, _ := serve(t, api)
	var raw map[string]json.RawMessage
	ask(t, "GET", s.URL+"/api/status", &raw)
	assert.Zero(t, api.after)
	assert.JSONEq(t, "[]", string(raw["events"]), "a list, also when it is empty")

	for i := range 500 {
		api.events = append(api.events, statuspoller.Event{ID: uint64(i + 1), Kind: statuspoller.KindNote, Text: "x"})
	}
	var got spectator.Report
	ask(t, "GET", s.URL+"/api/status?after=41", &got)
	assert.Equal(t, uint64(41), api.after)
	require.Len(t, got.Events, 200)
	assert.Equal(t, uint64(500), got.Events[199].ID)
	assert.InDelta(t, time.Now().UnixMilli(), got.Status.At, 10_000, "the server's clock, not that of a cached status")
	assert.NotEmpty(t, got.Instance)
	assert.Equal(t, api.status.Tiles, got.Status.Tiles)

	api.status.Commits = math.NaN()
	refused(t, http.StatusInternalServerError, "GET", s.URL+"/api/status")
}

func TestPageLoadsFromItsOwnHostOnly(t *testing.T) {
	s, _ := serve(t, &canned{})
	for path, kind := range map[string]string{
		"/": "text/html", "/assets/page.css": "text/css", "/assets/app.js": "text/javascript",
		"/assets/icon.svg": "image/svg+xml", "/api/world": "application/json",
	} {
		res := ask(t, "GET", s.URL+path, nil)
		require.Equal(t, http.StatusOK, res.StatusCode, path)
		assert.Contains(t, res.Header.Get("Content-Type"), kind)
		policy := res.Header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'self'")
		assert.Contains(t, policy, "connect-src 'self' ws: wss:")
		assert.NotContains(t, policy, "unsafe")
		assert.Equal(t, "nosniff", res.Header.Get("X-Content-Type-Options"))
	}
	assert.Equal(t, http.StatusNotFound, ask(t, "GET", s.URL+"/nothing", nil).StatusCode)
	assert.Equal(t, http.StatusMethodNotAllowed, ask(t, "POST", s.URL+"/", nil).StatusCode)
}

// TestAssetsAreComplete: every file the page and its scripts name is there, every file is named, and none
// names another host. An inline script or style would be dead under the policy.
func TestAssetsAreComplete(t *testing.T) {
	dir := os.DirFS("assets")
	files, err := fs.ReadDir(dir, ".")
	require.NoError(t, err)
	named := map[string]bool{"page.html": true}
	there := map[string]bool{}
	host := regexp.MustCompile(`(?i)(https?:|wss?:|["'(]\s*)//[a-z0-9]`)
	reference := regexp.MustCompile(`["'(](?:/assets/|\./)([a-z0-9.]+)["')]`)
	inline := regexp.MustCompile(`(?i)<style|<script>|\sstyle=|\son[a-z]+=`)
	for _, f := range files {
		there[f.Name()] = true
		data, err := fs.ReadFile(dir, f.Name())
		require.NoError(t, err)
		text := strings.ReplaceAll(string(data), `xmlns="http://www.w3.org/2000/svg"`, "")
		assert.Empty(t, host.FindAllString(text, -1), "%s names another host", f.Name())
		assert.NotContains(t, text, "eval(", f.Name())
		if strings.HasSuffix(f.Name(), ".html") {
			assert.Empty(t, inline.FindAllString(text, -1), "%s has something inline", f.Name())
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			named[m[1]] = true
		}
	}
	assert.Equal(t, named, there)
}
