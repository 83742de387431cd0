package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// hostile is what a store may say: it moves the cursor, makes lines and columns, and turns the direction of writing.
const hostile = "a\x1b[2J\nFORGED\tb\u202ec\u200bd\u009be\x7f\xff"

// harmless checks that nothing of an output is obeyed by a terminal, and that no line was made by a store.
func harmless(t *testing.T, text string) {
	t.Helper()
	require.NotContains(t, text, "\nFORGED")
	for _, r := range text {
		require.False(t, strings.ContainsRune("\x1b\u202e\u200b\u009b\x7f", r), "%q", text)
	}
}

// TestWhatStoresSayIsEscaped: hostile strings in each place from which commands in memory read.
func TestWhatStoresSayIsEscaped(t *testing.T) {
	b := newBoard(t)
	_, at := b.own(first, "10.0.0.1:7000", 2)
	require.NoError(t, b.log.DeadLetter(t.Context(), stream.Poison{Tile: first, Seq: 9, Reason: hostile,
		Fields: map[string]string{hostile: hostile}}))
	require.NoError(t, b.store.SaveSnapshot(t.Context(),
		fence.SnapshotWrite{Tile: first, Position: at, Tick: 2, Blob: []byte("state")}))
	_ = stream.MarkOne(t.Context(), b.log, stream.MarkWrite{Tile: first, Consumer: hostile, Seq: 1})
	for _, command := range []string{"tiles", "tile", "deadletters", "verify", "checkpoint verify"} {
		for _, form := range []string{"", "-json "} {
			out, errs, err := b.tilectl(t.Context(), form+command+" "+first.String())
			harmless(t, out+errs)
			if err != nil {
				harmless(t, strings.Join(lines(err), ";"))
			}
		}
	}
	out, _, err := b.tilectl(t.Context(), "deadletters "+first.String())
	require.NoError(t, err)
	require.Contains(t, out, `\u001b`)
}

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
	require.Equal(t, strings.ToValidUTF8(hostile, "\uFFFD"), back.Owner)
	require.Equal(t, []string{"a", `b\u000ac`, "d: e"},
		lines(errors.Join(errors.New("a"), errors.New("b\nc"), fmt.Errorf("d: %w", errors.New("e")))))
	require.Equal(t, `\udb40\udc01`, line("\U000E0001"))
}
