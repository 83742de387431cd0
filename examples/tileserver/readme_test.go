package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadmeShowsThisServer keeps the README's code the code that compiles.
func TestReadmeShowsThisServer(t *testing.T) {
	source, err := os.ReadFile("main.go")
	require.NoError(t, err)
	readme, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, shown, ok := strings.Cut(string(source), "// [begin]\n")
	require.True(t, ok)
	shown, _, ok = strings.Cut(shown, "// [end]")
	require.True(t, ok)
	require.Contains(t, string(readme), "```go\n"+strings.TrimSpace(shown)+"\n```")
}
