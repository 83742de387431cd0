package check_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/robustness/check"
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// TestAnInstallBetweenALookAndItsRecordCounts: an auditor asks at 10 and is answered that the tile has no owner;
// the owner installs from 11 to 12; the auditor records its answer at 13.
func TestAnInstallBetweenALookAndItsRecordCounts(t *testing.T) {
	const id = 1
	owner := &history.Owner{Epoch: 1, Contact: "a:1"}
	records := func(asked int64) *history.History {
		return history.Join([]history.Record{
			{At: 11, Process: "a", Kind: history.Commit, Op: 1, Tile: id,
				Commit: &history.CommitCall{Epoch: 1, Contact: "a:1", Install: true}},
			{At: 12, Process: "a", Kind: history.Return, Op: 1, Tile: id, Result: &history.Result{Outcome: history.OK}},
			{At: 13, Process: "auditor", Kind: history.SawOwner, Tile: id, Owner: &history.Owner{}, Asked: asked},
			{At: 20, Process: "auditor", Kind: history.SawOwner, Tile: id, Owner: owner, Asked: 19},
			{At: 30, Process: "auditor", Kind: history.Final, Tile: id, Final: &history.FinalTile{}},
		})
	}
	failClosed := []check.Check{{Name: "fails closed", Judge: check.FailClosed}}
	require.Empty(t, check.Run(records(10), failClosed))
	require.Len(t, check.Run(records(13), failClosed), 1,
		"an install that was over when it asked explains nothing")
}
