package tile

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestLogsInJSONHaveWords: the handler that production uses writes states and positions as people read them.
func TestLogsInJSONHaveWords(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	slog.New(slog.NewJSONHandler(&b, nil)).Info("x", "state", Healing, "class", WriteThrough,
		"outcome", stream.Fizzled, "at", fence.Position{Epoch: 3, Seq: 7, Chain: 1})
	assert.Contains(t, b.String(),
		`"state":"healing","class":"write-through","outcome":"fizzled","at":"3/7/0000000000000001"`)
}
