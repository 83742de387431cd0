package transfer

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// TestRefusalsAreFitToBeShown: what rules say of an arrival goes to another tile, and to logs there.
func TestRefusalsAreFitToBeShown(t *testing.T) {
	for _, reason := range []string{"full\x1b[2J", "a\xff", strings.Repeat("ö", 65)} {
		r := refusal(stream.TransferID{Epoch: 1, Seq: 1, Index: 1}, reason)
		assert.True(t, fence.IsName(r.Reason, stream.MaxRefusal), "%q", r.Reason)
	}
}
