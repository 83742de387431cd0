package main

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// conforms plays all cases against an adapter.
func conforms(t *testing.T, adapter ...string) {
	t.Parallel()
	var out bytes.Buffer
	o := &options{run: regexp.MustCompile(""), short: testing.Short(), parallel: 8, patience: time.Minute,
		adapter: adapter}
	failed := run(t.Context(), o, &out)
	t.Logf("%s", out.String()[strings.LastIndex(strings.TrimSpace(out.String()), "\n")+1:])
	require.Zero(t, failed, "%s", out.String())
}

func TestGoClients(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "goclient")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", binary, "./goclient")
	out, err := build.CombinedOutput()
	require.NoError(t, err, "%s", out)
	conforms(t, binary)
}

func TestJavaScriptClients(t *testing.T) {
	ask := exec.CommandContext(t.Context(), "node", "--experimental-websocket", "-p", "typeof WebSocket")
	if out, err := ask.Output(); err != nil || !strings.Contains(string(out), "function") {
		t.Skip("there is no node with WebSockets (20.10 or newer)")
	}
	conforms(t, "node", "--experimental-websocket", "--no-warnings", "jsclient/adapter.mjs")
}

// TestCSharpClients compiles clients/csharp with Mono, reads the golden messages, and plays the cases.
func TestCSharpClients(t *testing.T) {
	for _, tool := range []string{"mcs", "mono"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("Mono is not installed: run make install-tools")
		}
	}
	binary := filepath.Join(t.TempDir(), "adapter.exe")
	args := []string{"-langversion:7.2", "-warnaserror", "-out:" + binary}
	for _, pattern := range []string{"../csharp/*.cs", "../csharp/Conformance/*.cs"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		args = append(args, files...)
	}
	out, err := exec.CommandContext(t.Context(), "mcs", args...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	golden := exec.CommandContext(t.Context(), "mono", binary, "golden", "../../relay/testdata/messages.json")
	out, err = golden.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Regexp(t, `^[1-9][0-9]+ checks`, string(out))
	conforms(t, "mono", binary)
}

// A client that does nothing passes nothing.
func TestSilentClientFails(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	o := &options{run: regexp.MustCompile(""), parallel: 32, patience: 50 * time.Millisecond,
		adapter: []string{"sh", "-c", "echo ready; exec cat >/dev/null"}}
	var out bytes.Buffer
	require.Equal(t, len(cases), run(t.Context(), o, &out), "%s", out.String())
}

// An adapter shows what its client is not told: a batch too many, at the end and in between.
func TestSurplusIsNoticed(t *testing.T) {
	s := &trial{ctx: t.Context(), news: make(chan struct{}), patience: 50 * time.Millisecond}
	s.read(strings.NewReader("state a 0:00\nlost why\nbatch a 0:01\n"))
	s.read(strings.NewReader("ready\n"))
	require.ErrorContains(t, s.play(testCase{play: func(s *trial) { s.sees("state a 0:00") }}), `"batch a 0:01"`)
	s.read(strings.NewReader("ready\n"))
	require.ErrorContains(t, s.play(testCase{play: func(s *trial) { s.hears("lost"); s.quiet(0) }}), `"batch a 0:01"`)
	s.read(strings.NewReader("ready\n"))
	require.ErrorContains(t, s.play(testCase{play: func(s *trial) { s.sees("batch a 0:02") }}),
		`want the line "batch a 0:02"`)
}

// Names select cases, and stand in the documentation.
func TestNamesAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range cases {
		require.False(t, seen[c.name], c.name)
		require.NotEmpty(t, c.must, c.name)
		seen[c.name] = true
	}
}
