package fence_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
)

const (
	tooHigh = fence.MaxNumber + 1 // the first number that is refused: Redis compares numbers as doubles
	highest = 1<<64 - 1
)

// malformed is one edit of a valid argument, and the field that the refusal names.
type malformed[T any] struct {
	name, field string
	edit        func(*T)
}

// refuses requires that the argument is valid, and is refused after each of the edits.
func refuses[T any](t *testing.T, valid T, validate func(*T) error, edits []malformed[T]) {
	t.Helper()
	t.Parallel()
	require.NoError(t, validate(&valid))
	for _, test := range edits {
		t.Run(test.name, func(t *testing.T) {
			argument := valid
			test.edit(&argument)
			err := validate(&argument)
			require.ErrorIs(t, err, fence.ErrInvalidArgument)
			var bad *fence.ArgumentError
			require.ErrorAs(t, err, &bad)
			require.Equal(t, test.field, bad.Field)
			require.NotEmpty(t, bad.Want)
		})
	}
}

var tooLong = strings.Repeat("x", fence.MaxContact+1)

func TestClaimValidate(t *testing.T) {
	valid := fence.Claim{Tile: 1, Contact: "a:1", ID: fence.NewClaimID(), Expected: fence.MaxNumber - 1,
		Floor: fence.MaxNumber - 1}
	high := valid
	high.Expected, high.Floor = 1, fence.MaxRetired
	require.NoError(t, high.Validate())
	high.Expected, high.Floor = fence.MaxRetired, fence.MaxRetired+1<<20
	require.NoError(t, high.Validate())
	refuses(t, valid, (*fence.Claim).Validate, []malformed[fence.Claim]{
		{"no tile", "tile", func(c *fence.Claim) { c.Tile = 0 }},
		{"no contact", "contact", func(c *fence.Claim) { c.Contact = "" }},
		{"long contact", "contact", func(c *fence.Claim) { c.Contact = tooLong }},
		{"contact with a zero byte", "contact", func(c *fence.Claim) { c.Contact = "a\x00b" }},
		{"contact not UTF-8", "contact", func(c *fence.Claim) { c.Contact = "a\xff" }},
		{"no ID", "claim ID", func(c *fence.Claim) { c.ID = fence.ClaimID{} }},
		{"expected too high", "epoch", func(c *fence.Claim) { c.Expected = fence.MaxNumber }},
		{"floor too high", "floor", func(c *fence.Claim) { c.Floor = fence.MaxNumber }},
		{"floor far too high", "floor", func(c *fence.Claim) { c.Floor = highest }},
		{"floor that was never minted", "floor", func(c *fence.Claim) { c.Expected, c.Floor = 7, fence.MaxRetired+1 }},
		{"floor far above the record", "floor", func(c *fence.Claim) {
			c.Expected, c.Floor = fence.MaxRetired, fence.MaxRetired+1<<20+1
		}},
	})
}

func TestCommitValidate(t *testing.T) {
	valid := fence.Commit{Tile: 1, Epoch: fence.MaxNumber, Contact: tooLong[1:], Tick: fence.MaxNumber,
		Prev:    fence.Position{Epoch: fence.MaxNumber, Seq: fence.MaxNumber - 1},
		Payload: make([]byte, fence.MaxPayload-1), Private: []byte("p"),
		At: time.UnixMilli(fence.MaxNumber), Replicas: fence.AllReplicas}
	refuses(t, valid, (*fence.Commit).Validate, []malformed[fence.Commit]{
		{"no tile", "tile", func(c *fence.Commit) { c.Tile = 0 }},
		{"no epoch", "epoch", func(c *fence.Commit) { c.Epoch = 0 }},
		{"epoch too high", "epoch", func(c *fence.Commit) { c.Epoch = tooHigh }},
		{"no contact", "contact", func(c *fence.Commit) { c.Contact = "" }},
		{"long contact", "contact", func(c *fence.Commit) { c.Contact = tooLong }},
		{"prev of a higher epoch", "prev", func(c *fence.Commit) { c.Prev.Epoch = c.Epoch + 1 }},
		{"no sequence left", "prev", func(c *fence.Commit) { c.Prev.Seq = fence.MaxNumber }},
		{"prev too high", "prev", func(c *fence.Commit) { c.Prev.Seq = highest }},
		{"tick too high", "tick", func(c *fence.Commit) { c.Tick = tooHigh }},
		{"time before 1970", "at", func(c *fence.Commit) { c.At = time.UnixMilli(-1) }},
		{"time too high", "at", func(c *fence.Commit) { c.At = time.UnixMilli(tooHigh) }},
		{"large payload", "payload", func(c *fence.Commit) { c.Payload = make([]byte, fence.MaxPayload) }},
		{"large parts together", "payload", func(c *fence.Commit) { c.Private = []byte("pp") }},
		{"replicas", "replicas", func(c *fence.Commit) { c.Replicas = fence.AllReplicas - 1 }},
	})
}

func TestRebaseValidate(t *testing.T) {
	valid := fence.Rebase{Tile: 1, Epoch: fence.MaxNumber, Contact: tooLong[1:], Seq: fence.MaxNumber,
		Tick: fence.MaxNumber, At: time.UnixMilli(fence.MaxNumber), Blob: make([]byte, fence.MaxSnapshot),
		Replicas: fence.AllReplicas}
	refuses(t, valid, (*fence.Rebase).Validate, []malformed[fence.Rebase]{
		{"no tile", "tile", func(r *fence.Rebase) { r.Tile = 0 }},
		{"no epoch", "epoch", func(r *fence.Rebase) { r.Epoch = 0 }},
		{"epoch too high", "epoch", func(r *fence.Rebase) { r.Epoch = tooHigh }},
		{"no contact", "contact", func(r *fence.Rebase) { r.Contact = "" }},
		{"long contact", "contact", func(r *fence.Rebase) { r.Contact = tooLong }},
		{"no sequence", "seq", func(r *fence.Rebase) { r.Seq = 0 }},
		{"sequence too high", "seq", func(r *fence.Rebase) { r.Seq = tooHigh }},
		{"tick too high", "tick", func(r *fence.Rebase) { r.Tick = tooHigh }},
		{"time too high", "at", func(r *fence.Rebase) { r.At = time.UnixMilli(tooHigh) }},
		{"large blob", "blob", func(r *fence.Rebase) { r.Blob = make([]byte, fence.MaxSnapshot+1) }},
		{"replicas", "replicas", func(r *fence.Rebase) { r.Replicas = fence.AllReplicas - 1 }},
	})
}

func TestSnapshotWriteValidate(t *testing.T) {
	valid := fence.SnapshotWrite{Tile: 1, Position: fence.Position{Epoch: fence.MaxNumber, Seq: fence.MaxNumber},
		Tick: fence.MaxNumber, Blob: make([]byte, fence.MaxSnapshot)}
	refuses(t, valid, (*fence.SnapshotWrite).Validate, []malformed[fence.SnapshotWrite]{
		{"no tile", "tile", func(w *fence.SnapshotWrite) { w.Tile = 0 }},
		{"the beginning", "position", func(w *fence.SnapshotWrite) { w.Position = fence.Position{} }},
		{"no epoch", "position", func(w *fence.SnapshotWrite) { w.Position.Epoch = 0 }},
		{"no sequence", "position", func(w *fence.SnapshotWrite) { w.Position.Seq = 0 }},
		{"epoch too high", "position", func(w *fence.SnapshotWrite) { w.Position.Epoch = tooHigh }},
		{"sequence too high", "position", func(w *fence.SnapshotWrite) { w.Position.Seq = tooHigh }},
		{"tick too high", "tick", func(w *fence.SnapshotWrite) { w.Tick = tooHigh }},
		{"large blob", "blob", func(w *fence.SnapshotWrite) { w.Blob = make([]byte, fence.MaxSnapshot+1) }},
	})
}
