package check

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TestActionsAreLearned: a watcher may see an entry first, without what it decided; whoever presented it or sees it
// whole says that. What somebody else presented there says nothing.
func TestActionsAreLearned(t *testing.T) {
	at, decided := history.Position{Epoch: 1, Seq: 1, Chain: 7}, []history.Action{{ID: "a", Outcome: "applied"}}
	seen := history.Record{Kind: history.Frame, Tile: 1, At: 1, Entry: &history.Entry{Position: at, Payload: "digest"}}
	for name, c := range map[string]struct {
		payload string
		want    []history.Action
	}{"the same entry": {"digest", decided}, "another": {"other", nil}} {
		saw := history.Record{Kind: history.Saw, Tile: 1, At: 2,
			Entry: &history.Entry{Position: at, Payload: c.payload, Actions: decided}}
		tile := NewTile(&history.History{Records: []history.Record{seen, saw}}, 1)
		require.Equal(t, c.want, tile.Entries[at].Actions, name)
		o := history.Operation{Record: history.Record{Kind: history.Commit, Tile: 1,
			Commit: &history.CommitCall{Next: at, Payload: c.payload, Actions: decided}}}
		tile = NewTile(&history.History{Records: []history.Record{seen}, Operations: []history.Operation{o}}, 1)
		require.Equal(t, c.want, tile.Entries[at].Actions, name)
	}
}
