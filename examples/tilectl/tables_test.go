package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

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
