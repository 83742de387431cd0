package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPrinter: tables, JSON, lines and errors of a store are escaped in one place.
func TestPrinter(t *testing.T) {
	type row struct{ Owner string }
	var out bytes.Buffer
	tool := &tool{options: &options{}, out: &printer{&out}, raw: &out}
	rows := []row{{hostile}, {"two  columns"}}
	require.NoError(t, printTable(tool, "OWNER", rows, func(r *row) []any { return []any{r.Owner} }))
	harmless(t, out.String())
	require.Equal(t, 3, strings.Count(out.String(), "\n"))
	require.Contains(t, out.String(), `"two  columns"`)
	out.Reset()
	tool.options.json = true
	require.NoError(t, printTable(tool, "OWNER", rows, nil))
	harmless(t, out.String())
	var back row
	require.NoError(t, json.Unmarshal([]byte(strings.Split(out.String(), "\n")[0]), &back))
	require.Equal(t, strings.NewReplacer("\xff", "\uFFFD", "\xc3", "\uFFFD").Replace(hostile), back.Owner)
	require.Equal(t, []string{"a", `b\u000ac`, "d: e"},
		lines(errors.Join(errors.New("a"), errors.New("b\nc"), fmt.Errorf("d: %w", errors.New("e")))))
	require.Equal(t, `\udb40\udc01`, line("\U000E0001"))
}

// TestBytesAreForPrograms: what is written as it is does not go to a terminal.
func TestBytesAreForPrograms(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f")
	for name, want := range map[string]bool{os.DevNull: true, "/dev/zero": false, file: true} {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE, 0o600)
		require.NoError(t, err)
		require.Equal(t, want, (&tool{raw: f}).redirected() == nil, name)
		require.NoError(t, f.Close())
	}
}

// TestDefaultTables: the tables are those of the world, from the environment or the command line, unless named there.
func TestDefaultTables(t *testing.T) {
	for _, c := range []struct{ environment, line, checkpoints, ledger string }{
		{"", "checkpoint list", "tilefence-checkpoints", "tilefence-ledger"},
		{"staging", "checkpoint list", "staging-checkpoints", "staging-ledger"},
		{"staging", "checkpoint list -world live", "live-checkpoints", "live-ledger"},
		{"staging", "-ledger sqlite:money.db ledger", "staging-checkpoints", "sqlite:money.db"},
		{"", "-world live -checkpoints mine checkpoint list", "mine", "live-ledger"},
	} {
		t.Setenv("TILEFENCE_WORLD", c.environment)
		o, err := parse(strings.Fields(c.line), io.Discard)
		require.NoError(t, err)
		require.Equal(t, c.checkpoints, o.checkpoints, c.line)
		require.Equal(t, c.ledger, o.ledger, c.line)
	}
}
