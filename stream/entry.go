package stream

import (
	"errors"
	"fmt"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream/internal/fields"
)

// ParseEntry reads a stored entry from its fields, whose names and texts are those of docs/wire.md; field gives
// the text of one, and whether it is there. The error says which field is wrong. It does not compare the chain
// with the content: fence.Entry.Verify does. For back ends.
func ParseEntry(seq fence.Seq, field func(name string) (text string, found bool)) (fence.Entry, error) {
	f := fields.Reader{Field: field}
	e := fence.Entry{Tick: fence.Tick(f.Number("tick")), Events: int(f.Number("events")), Committed: int64(f.Number("at")),
		Payload: []byte(f.Text("payload"))}
	rebase, _ := field("rebase")
	e.Rebase = rebase == "1"
	e.Position = fence.Position{Epoch: fence.Epoch(f.Number("epoch")), Seq: seq, Chain: f.Chain("chain")}
	e.Prev = f.Position("prev")
	if f.Err == nil && (e.Epoch == 0 || seq == 0 || seq > fence.MaxNumber || e.Events > fence.MaxEvents || len(e.Payload) > fence.MaxPayload) {
		f.Err = errors.New("epoch, sequence, events or payload out of range")
	}
	return e, f.Err
}

// EntryOf reads an entry that was once put aside as unreadable: this version may understand what an older one did
// not, or an operator may have mended the fields. It must be what it says: its chain must be its content's, and its
// sequence the one after the entry that it follows, unless it is a rebase marker. Errors: a *fence.CorruptError,
// which says what is still wrong.
func EntryOf(p *Poison) (fence.Entry, error) {
	e, err := ParseEntry(p.Seq, func(name string) (string, bool) {
		text, found := p.Fields[name]
		return text, found
	})
	switch {
	case err != nil:
	case !e.Rebase && e.Seq != e.Prev.Seq+1:
		err = fmt.Errorf("it follows %s, which is not the sequence before its own", e.Prev)
	case e.Rebase && e.Seq <= e.Prev.Seq:
		err = fmt.Errorf("it follows %s, which is not before it", e.Prev)
	default:
		if err = e.Verify(p.Tile); err == nil {
			return e, nil
		}
		return fence.Entry{}, err
	}
	return fence.Entry{}, &fence.CorruptError{Tile: p.Tile, What: "dead letter", At: fence.Position{Epoch: p.Epoch, Seq: p.Seq}, Detail: err.Error()}
}
