//go:build browser && unix

package chromium

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"
)

// Tab is a page in a headless Chromium of its own, driven over the DevTools protocol.
type Tab struct {
	t    *testing.T
	conn *websocket.Conn
	ctx  context.Context

	mu       sync.Mutex
	last     int
	waiting  map[int]chan json.RawMessage
	requests []string // addresses asked for by the page and its worker
	errors   []string // exceptions and console errors
}

// Open starts a browser, with flags of the test's own, and loads an address in it. The browser is the one named by
// CHROMIUM, or one of the usual names; without any, the test fails: the tag browser asks for one.
func Open(t *testing.T, url string, flags ...string) *Tab {
	t.Helper()
	program := os.Getenv("CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && program == "" {
			program = path
		}
	}
	require.NotEmpty(t, program, "no chromium in PATH; set CHROMIUM to a browser")
	args := append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
		"--disable-component-update", "--no-first-run", "--user-data-dir=" + t.TempDir(), "--remote-debugging-port=0",
		"--window-size=1440,900"}, flags...)
	cmd := exec.Command(program, append(args, "about:blank")...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // its helpers end with it
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	b := &Tab{t: t, ctx: ctx, waiting: map[int]chan json.RawMessage{}}
	b.conn, _, err = websocket.Dial(ctx, target(t, stderr), nil)
	require.NoError(t, err)
	b.conn.SetReadLimit(64 << 20)
	go b.read()
	for _, domain := range []string{"Page", "Runtime", "Network"} {
		b.Call(domain+".enable", nil)
	}
	b.Call("Page.navigate", map[string]any{"url": url})
	b.Until(`location.href !== "about:blank" && document.readyState === "complete"`)
	return b
}

// target waits for the browser to say where it listens and returns the address of its first page.
func target(t *testing.T, stderr io.Reader) string {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		_, address, found := strings.Cut(lines.Text(), "DevTools listening on ws://")
		if !found {
			continue
		}
		go func() { _, _ = io.Copy(io.Discard, stderr) }() // a full pipe would stop the browser
		host, _, _ := strings.Cut(address, "/")
		request, err := http.NewRequest(http.MethodPut, "http://"+host+"/json/new?about:blank", nil)
		require.NoError(t, err)
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		var page struct {
			URL string `json:"webSocketDebuggerUrl"`
		}
		require.NoError(t, json.NewDecoder(response.Body).Decode(&page))
		return page.URL
	}
	t.Fatal("the browser ended before it listened")
	return ""
}

// read hands answers to their callers and notes what the page does.
func (b *Tab) read() {
	for {
		_, data, err := b.conn.Read(b.ctx)
		if err != nil {
			return
		}
		var m struct {
			ID     int             `json:"id"`
			Method string          `json:"method"`
			Result json.RawMessage `json:"result"`
			Params struct {
				Type    string `json:"type"`
				URL     string `json:"url"`
				Request struct {
					URL string `json:"url"`
				} `json:"request"`
			} `json:"params"`
		}
		if json.Unmarshal(data, &m) != nil {
			continue
		}
		b.mu.Lock()
		switch {
		case m.ID > 0:
			b.waiting[m.ID] <- m.Result
			delete(b.waiting, m.ID)
		case m.Method == "Network.requestWillBeSent":
			b.requests = append(b.requests, m.Params.Request.URL)
		case m.Method == "Network.webSocketCreated":
			b.requests = append(b.requests, m.Params.URL)
		case m.Method == "Runtime.exceptionThrown", m.Method == "Runtime.consoleAPICalled" && m.Params.Type == "error":
			b.errors = append(b.errors, string(data))
		}
		b.mu.Unlock()
	}
}

// Call asks the browser and waits for its answer.
func (b *Tab) Call(method string, params any) json.RawMessage {
	b.t.Helper()
	answer := make(chan json.RawMessage, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.waiting[id] = answer
	b.mu.Unlock()
	data, err := json.Marshal(map[string]any{"id": id, "method": method, "params": params})
	require.NoError(b.t, err)
	require.NoError(b.t, b.conn.Write(b.ctx, websocket.MessageText, data))
	select {
	case result := <-answer:
		return result
	case <-b.ctx.Done():
		require.Fail(b.t, "the browser does not answer", method)
		return nil
	}
}

// Eval runs an expression in the page, awaits it, and decodes its value into out.
func (b *Tab) Eval(expression string, out any) {
	b.t.Helper()
	var result struct {
		Result struct {
			Value json.RawMessage `json:"value"`
		} `json:"result"`
		Exception json.RawMessage `json:"exceptionDetails"`
	}
	raw := b.Call("Runtime.evaluate", map[string]any{"expression": expression, "awaitPromise": true,
		"returnByValue": true})
	require.NoError(b.t, json.Unmarshal(raw, &result))
	require.Empty(b.t, string(result.Exception), expression)
	if out != nil {
		require.NoError(b.t, json.Unmarshal(result.Result.Value, out), "%s", raw)
	}
}

// Until waits for an expression to become true; one that throws is not true yet.
func (b *Tab) Until(expression string) {
	b.t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		var yes bool
		b.Eval("(() => { try { return Boolean("+expression+"); } catch { return false; } })()", &yes)
		if yes {
			return
		}
		require.True(b.t, time.Now().Before(end), "never became true: %s", expression)
	}
}

// Noted returns what the page has asked for and what went wrong in it.
func (b *Tab) Noted() (requests, errors []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.requests...), append([]string(nil), b.errors...)
}
