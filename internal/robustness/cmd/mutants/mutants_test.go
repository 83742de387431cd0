//go:build unix

package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// A run of some mutants leaves the rows of the others as they are, and does not keep those of mutants that have gone.
func TestARunOfSomeKeepsTheOthersRows(t *testing.T) {
	page := filepath.Join(t.TempDir(), "mutants.md")
	all := func(m *mutant, v verdict) []trial {
		return []trial{{mutant: m, detector: detector{name: "one"}, verdict: v},
			{mutant: m, detector: detector{name: "other"}, verdict: v}}
	}
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	write := func(trials []trial) string {
		text, err := matrix(trials, began, kept(page))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(page, []byte(text), 0o600))
		return text
	}
	first := write(all(&mutants[0], caught))
	assert.Contains(t, first, "| "+mutants[0].name+" | "+mutants[0].rule+" | one; other | - | ")
	assert.Contains(t, first, "**1 of 1 mutants were caught by two detectors or more.**")
	require.NoError(t, os.WriteFile(page, []byte(first+"| it has gone | r | a; b | - | - | 2026-01-01 |\n"), 0o600))
	began = began.AddDate(0, 0, 1)
	second := write(append(all(&mutants[1], caught)[:1], all(&mutants[1], missed)[0]))
	assert.Contains(t, second, "| one; other | - | "+string(modelled[mutants[0].name])+" | 2026-01-02 |\n| ")
	assert.Contains(t, second, "| one | one | "+string(modelled[mutants[1].name])+" | 2026-01-03 |\n")
	assert.Contains(t, second, "**1 of 2 mutants were caught by two detectors or more.**")
	assert.NotContains(t, second, "it has gone")
}

// The tables of docs/protocol.md name mutants, and tests, that are there.
func TestTheTablesOfBordersAreTrue(t *testing.T) {
	for _, cells := range table(t, "| mistake | the code without the rule | found by |", 3) {
		known := slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == cells[1] && len(m.by) >= 2 })
		assert.True(t, known || strings.HasPrefix(cells[1], "none: "), "%s", cells)
		require.Regexp(t, "^`Test", cells[2])
	}
	for _, cells := range table(t, "| what is lost | `checkpointed`, ", 4) {
		assert.False(t, strings.HasPrefix(cells[2], "exact") && cells[3] == "-", "%s: no test shows it", cells)
	}
}

// table is the rows of a table of docs/protocol.md, of so many cells each. The last has tests, which must be there.
func table(t *testing.T, head string, columns int) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../../../docs/protocol.md")
	require.NoError(t, err)
	_, text, found := strings.Cut(string(page), "\n"+head)
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n\n")
	for _, row := range strings.Split(text, "\n")[2:] {
		cells := strings.Split(strings.Trim(row, "| "), " | ")
		require.Len(t, cells, columns, row)
		between := func(r rune) bool { return strings.ContainsRune("`,; -", r) }
		for _, name := range strings.FieldsFunc(cells[columns-1], between) {
			assert.True(t, isTest(t, name), "%s is not there", name)
		}
		rows = append(rows, cells)
	}
	require.Greater(t, len(rows), 6)
	return rows
}

// isTest reports whether one of the packages that the seam is tested in has a test.
func isTest(t *testing.T, name string) bool {
	t.Helper()
	for _, dir := range []string{"tile", "internal/robustness/spec", "internal/robustness/simulation",
		"internal/robustness/campaign"} {
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
