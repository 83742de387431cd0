package main

import (
	"os"
	"path/filepath"
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
