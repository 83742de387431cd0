//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A mutant whose text has changed would show nothing, and only after a quarter of an hour.
func TestEachMutantStillApplies(t *testing.T) {
	for _, m := range mutants {
		source, err := os.ReadFile(filepath.Join("../../../..", m.file))
		require.NoError(t, err, m.name)
		assert.Equal(t, 1, strings.Count(string(source), m.old), m.name)
	}
}

// The table of docs/protocol.md names mutants, and tests, that are there.
func TestTheTableOfBordersIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/protocol.md")
	require.NoError(t, err)
	_, table, found := strings.Cut(string(page), "| mistake | the code without the rule | found by |\n|---|---|---|\n")
	require.True(t, found)
	table, _, _ = strings.Cut(table, "\n\n")
	rows := strings.Split(table, "\n")
	require.Greater(t, len(rows), 10)
	for _, row := range rows {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, 3, row)
		known := slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == cells[1] && len(m.by) >= 2 })
		assert.True(t, known || strings.HasPrefix(cells[1], "none: "), "%s", row)
		require.Regexp(t, "^`Test", cells[2])
		for _, name := range strings.Split(cells[2], ", ") {
			assert.True(t, isTest(t, strings.Trim(name, "`")), "%s is not there", name)
		}
	}
}

// isTest reports whether one of the packages that the seam is tested in has a test.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	for _, dir := range []string{"tile", "internal/robustness/spec"} {
		files, err := filepath.Glob(filepath.Join("../../../..", dir, "*_test.go"))
		require.NoError(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			if strings.Contains(string(text), "\nfunc "+name+"(") {
				return true
			}
		}
	}
	return false
}
