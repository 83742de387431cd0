package history_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
	"github.com/tilefence/tilefence/tile"
)

const testTile fence.TileID = 0x85283083fffffff

// record makes one of everything that is recorded.
func record(t *testing.T, r *history.Recorder) {
	ctx := t.Context()
	authority := r.Authority("a#1", memfence.NewAuthority())
	_, err := authority.Lookup(ctx, testTile)
	require.ErrorIs(t, err, fence.ErrNeverOwned)
	g, err := authority.Claim(ctx, fence.Claim{Tile: testTile, Contact: "a:1", ID: fence.NewClaimID()})
	require.NoError(t, err)
	_, err = authority.Promote(ctx, fence.Claim{Tile: testTile, Contact: "b:1", ID: fence.NewClaimID(), Expected: 9})
	require.ErrorIs(t, err, fence.ErrLost)

	memory := memfence.New()
	store := r.Store("a#1", memory)
	rebase := fence.Rebase{Tile: testTile, Epoch: g.Epoch, Contact: "a:1", Seq: 1, Blob: []byte("state"),
		Replicas: fence.AllReplicas}
	_, err = store.Rebase(ctx, rebase)
	require.NoError(t, err)
	payload, private, err := (&stream.Batch{Events: [][]byte{[]byte("moved")},
		Resolutions: []stream.Resolution{{ActionID: "act", Outcome: stream.Applied}}}).Encode()
	require.NoError(t, err)
	c := fence.Commit{Tile: testTile, Epoch: g.Epoch, Contact: "a:1", Prev: rebase.Next(), Tick: 1, Payload: payload,
		Private: private}
	_, err = store.Commit(ctx, c)
	require.NoError(t, err)
	c.Replicas = 1
	_, err = store.Commit(ctx, c)
	require.ErrorIs(t, err, fence.ErrUnconfirmed)
	_, err = store.Commit(ctx, fence.Commit{Tile: testTile, Epoch: g.Epoch, Contact: "a:1", Tick: 1})
	require.ErrorIs(t, err, fence.ErrForked)
	require.NoError(t, store.SaveSnapshot(ctx,
		fence.SnapshotWrite{Tile: testTile, Position: c.Next(), Tick: 1, Blob: []byte("state")}))

	auditor := r.Auditor("auditor", memstream.New(memory))
	require.NoError(t, auditor.Look(ctx, []fence.TileID{testTile}))
	r.Reset("watcher", testTile, rebase.Next())
	e := c.Entry()
	r.Frame("watcher", &e)
	r.Submit("gateway", &tile.Intent{Tile: testTile, ActionID: "act"}, "a:1")(stream.Applied, nil)
	r.Submit("gateway", &tile.Intent{Tile: testTile, ActionID: "act2"}, "a:1")(0, &tile.UnresolvedError{Tile: testTile})
	r.Submit("gateway", &tile.Intent{Tile: testTile, ActionID: "act3"}, "a:1")
	r.Ended("a#1", "a:1", &tile.Status{Tile: testTile}, &tile.SupersededError{Tile: testTile, Held: 1,
		Successor: fence.Owner{Epoch: 2, Contact: "b:1"}})
	r.Fault(history.FaultInfo{Name: "pause master", Failover: true})
	r.Restored("campaign", testTile, history.GrantOf(g))()
	require.NoError(t, authority.Release(ctx, g))
	r.Held("watcher", testTile, c.Next(), "sum")
	r.Final(testTile, history.FinalTile{End: history.Position(c.Next()), Applied: []string{"act"}})
}

func TestFileKeepsEveryRecord(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.jsonl")
	file, err := history.Create(path)
	require.NoError(t, err)
	memory := &history.Memory{}
	r := history.NewRecorder("p1", both{file, memory}, nil)
	record(t, r)
	require.NoError(t, r.Err())
	got, err := history.ReadFiles(path)
	require.NoError(t, err)
	require.Equal(t, memory.Records(), got)
	for i := 1; i < len(got); i++ {
		assert.Greater(t, got[i].At, got[i-1].At)
	}
	_, err = history.Create(path)
	assert.ErrorIs(t, err, os.ErrExist, "two processes must not share a file")
	require.NoError(t, file.Close())
	record(t, r)
	assert.ErrorIs(t, r.Err(), os.ErrClosed)
}

type both struct{ a, b history.Sink }

func (s both) Append(r history.Record) error {
	if err := s.a.Append(r); err != nil {
		return err
	}
	return s.b.Append(r)
}

func TestLastLineMayBeTorn(t *testing.T) {
	memory := &history.Memory{}
	record(t, history.NewRecorder("p1", memory, nil))
	var text strings.Builder
	for _, r := range memory.Records() {
		line, err := r.MarshalLine()
		require.NoError(t, err)
		text.Write(line)
	}
	whole := text.String()
	n := len(memory.Records())
	for cut := len(whole) - 1; cut > strings.LastIndex(whole[:len(whole)-1], "\n"); cut-- {
		got, err := history.Read(strings.NewReader(whole[:cut]))
		require.NoError(t, err)
		require.Len(t, got, n-1, "cut at %d of %d", cut, len(whole))
	}
	_, err := history.Read(strings.NewReader("{\"at\":1\n" + whole))
	assert.ErrorContains(t, err, "line 1")
	_, err = history.Read(strings.NewReader("{\"at\":1,\"from\":\"the future\"}\n"))
	assert.ErrorContains(t, err, "unknown field")
}

func TestJoinLeavesOpenWhatIsNotKnown(t *testing.T) {
	memory := &history.Memory{}
	record(t, history.NewRecorder("p1", memory, nil))
	h := history.Join(memory.Records())
	assert.Equal(t, []fence.TileID{testTile}, h.Tiles())
	assert.NotEqual(t, int64(history.Never), h.FirstFault())
	byKind := map[history.Kind][]history.Outcome{}
	open := 0
	for _, o := range h.Operations {
		byKind[o.Kind] = append(byKind[o.Kind], o.Result.Outcome)
		if o.Open() {
			open++
		}
	}
	assert.Equal(t, []history.Outcome{history.OK, history.Unconfirmed, history.Refused}, byKind[history.Commit])
	assert.Equal(t, []history.Outcome{history.OK, history.Unknown, ""}, byKind[history.Submit])
	assert.Equal(t, []history.Outcome{history.Lost}, byKind[history.Promote])
	assert.Equal(t, []history.Outcome{history.OK}, byKind[history.Release])
	assert.Equal(t, 2, open)
}
