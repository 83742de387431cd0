package history

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
)

// Decided is a tile's history as processes have logged what they decided (package decision), with what the tile's
// stream holds; nil: that is not known, and the tile ends with the last write that was answered under the highest
// epoch. Batches have no actions but those of the stream.
//
// Each life of a tile's owner is a client of its own: it ends with the event that says so.
func Decided(id fence.TileID, logs []*decision.File, stream []Entry) (*History, error) {
	h := &History{}
	for _, f := range logs {
		l := reading{file: f, h: h, ends: map[int][]int64{}, clients: map[[2]int]string{}}
		if err := f.Each(id, l.life); err != nil {
			return nil, err
		}
		if err := f.Each(id, l.operation); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(h.Operations, func(a, b Operation) int { return cmp.Compare(a.At, b.At) })
	final := FinalTile{Entries: stream}
	for i := range stream {
		h.Records = append(h.Records, Record{Kind: Saw, Process: "stream", Tile: id, Entry: &stream[i]})
		final.End = stream[i].Position
	}
	if len(stream) == 0 {
		final.End = lastAnswered(h.Operations)
	}
	h.Records = append(h.Records, Record{Kind: Final, Tile: id, Final: &final})
	return h, nil
}

// lastAnswered is the position under the highest epoch that a writer was answered is in the store.
func lastAnswered(operations []Operation) (end Position) {
	for i := range operations {
		o := &operations[i]
		if o.Kind != Commit && o.Kind != Rebase || !o.Applied() {
			continue
		}
		if at := o.Result.Position; at.Epoch > end.Epoch || at.Epoch == end.Epoch && at.Seq > end.Seq {
			end = at
		}
	}
	return end
}

// reading is a log being read.
type reading struct {
	file *decision.File
	h    *History
	ends map[int][]int64 // by server: when owners of the tile have ended there

	clients map[[2]int]string // by server and life
	commits []CommitCall      // many are made at once: a log has millions
}

func (l *reading) life(e *decision.Event) {
	if e.Kind != decision.Ended {
		return
	}
	r := l.record(e, Life)
	r.Life = &LifeEvent{Ended: true, Epoch: e.Epoch, Contact: l.contact(e)}
	if e.Current.Epoch != 0 {
		successor := OwnerOf(e.Current)
		r.Life.Successor = &successor
	}
	l.h.Records = append(l.h.Records, r)
	l.ends[e.Server] = append(l.ends[e.Server], e.Called)
}

// record is what every record has. Its client is a life of a tile's owner.
func (l *reading) record(e *decision.Event, kind Kind) Record {
	ends := l.ends[e.Server]
	life := sort.Search(len(ends), func(i int) bool { return ends[i] > e.Called })
	key := [2]int{e.Server, life}
	client := l.clients[key]
	if client == "" {
		client = fmt.Sprintf("%s#%d.%d", l.file.Servers[e.Server], e.Server+1, life+1)
		l.clients[key] = client
	}
	return Record{At: e.Called, Process: filepath.Base(l.file.Name), Client: client, Kind: kind, Tile: e.Tile}
}

func (l *reading) contact(e *decision.Event) string {
	return cmp.Or(e.Contact, l.file.Servers[e.Server])
}

var kinds = map[decision.Kind]Kind{decision.Claim: Claim, decision.Promote: Promote, decision.Lookup: Lookup,
	decision.Release: Release, decision.Commit: Commit, decision.Rebase: Rebase, decision.Snapshot: Snapshot}

func (l *reading) operation(e *decision.Event) {
	kind, ok := kinds[e.Kind]
	if !ok {
		return
	}
	o := Operation{Record: l.record(e, kind), Returned: e.Called + e.Took, Result: answered(&e.Answer)}
	if o.Result.Open() {
		o.Returned = Never
	}
	state := strconv.FormatUint(e.State, 16)
	switch e.Kind {
	case decision.Claim, decision.Promote:
		o.Claim = &ClaimCall{Contact: l.contact(e), ID: e.ID.String(), Expected: e.Expected, Floor: e.Floor}
	case decision.Release:
		o.Row = &Grant{Epoch: e.Epoch, Contact: l.contact(e), ID: e.ID.String()}
	case decision.Commit:
		o.Commit = l.commit(e)
		if !e.Refresh {
			o.Commit.Payload = state
		}
	case decision.Rebase:
		o.Rebase = &RebaseCall{Epoch: e.Epoch, Contact: l.contact(e), Next: Position(e.Next), Tick: e.Tick,
			Replicas: e.Replicas, State: state}
		if e.Replaces {
			at := Position(e.Prev) // e is read over
			o.Rebase.Replaces = &at
		}
	case decision.Snapshot:
		o.Snapshot = &SnapshotCall{Position: Position(e.Next), Tick: e.Tick, State: state}
	}
	l.h.Operations = append(l.h.Operations, o)
}

func (l *reading) commit(e *decision.Event) *CommitCall {
	if len(l.commits) == 0 {
		l.commits = make([]CommitCall, 256)
	}
	c := &l.commits[0]
	l.commits = l.commits[1:]
	*c = CommitCall{Epoch: e.Epoch, Contact: l.contact(e), Prev: Position(e.Prev), Next: Position(e.Next), Tick: e.Tick,
		Install: e.Install, Replicas: e.Replicas}
	return c
}
