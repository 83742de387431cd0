// Package ledgertest holds what the tests of package tile and of the packages below it share.
package ledgertest

import (
	"bytes"
	"context"
	"errors"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Ledger is the smallest game that notices every lost, doubled or reordered event: its state is the list of
// words it was given, in order. An intent is a word; "no" fizzles.
type Ledger struct {
	Words []string
	Err   error // returned by Apply when set
}

// Restore is for tile.Rules.
func (l *Ledger) Restore(snapshot []byte) error {
	l.Words = nil
	if len(snapshot) > 0 {
		l.Words = strings.Split(string(snapshot), " ")
	}
	return nil
}

// Resolve is for tile.Rules.
func (l *Ledger) Resolve(_ fence.Tick, intents []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for _, in := range intents {
		if bytes.Equal(in.Body, []byte("no")) {
			outcomes = append(outcomes, stream.Fizzled)
			continue
		}
		events = append(events, in.Body)
		outcomes = append(outcomes, stream.Applied)
	}
	return events, outcomes
}

// Apply is for tile.Rules.
func (l *Ledger) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		if len(e) == 0 {
			return errors.New("an empty word")
		}
		l.Words = append(l.Words, string(e))
	}
	return l.Err
}

// Snapshot is for tile.Rules.
func (l *Ledger) Snapshot() ([]byte, error) { return []byte(strings.Join(l.Words, " ")), nil }

// Committed returns the words of a tile's committed history, folded as the next owner would fold them.
func Committed(ctx context.Context, log stream.Log, id fence.TileID) ([]string, error) {
	h, err := stream.Recover(ctx, log, id)
	if err != nil {
		return nil, err
	}
	l := &Ledger{}
	game, _, err := stream.OpenSnapshot(h.Snapshot.Blob)
	if err != nil {
		return nil, err
	}
	if err := l.Restore(game); err != nil {
		return nil, err
	}
	for i := range h.Entries {
		b, err := stream.DecodeBatch(&h.Entries[i])
		if err != nil {
			return nil, err
		}
		if err := l.Apply(h.Entries[i].Tick, b.Events); err != nil {
			return nil, err
		}
	}
	return l.Words, nil
}
