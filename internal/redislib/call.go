package redislib

import (
	"context"

	"github.com/tilefence/tilefence/fence"
)

// FunctionCall is one invocation of a function of redisfence's library on one tile's keys.
type FunctionCall struct {
	Tile     fence.TileID
	Function string
	Keys     []string
	Args     []any
}

// FunctionReply is what a function answered: what comes after 'ok', or why there is none.
type FunctionReply struct {
	Values []any
	Err    error
}

// Caller runs functions, loading the library where it is missing.
type Caller interface {
	// Call runs one function.
	Call(ctx context.Context, op string, c FunctionCall) ([]any, error)

	// CallMany runs functions, one pipeline a node. The replies are in the order of the calls.
	CallMany(ctx context.Context, op string, calls []FunctionCall) []FunctionReply
}

// OwnerFields are the fields of the owner hash in the order ParseOwner takes them.
var OwnerFields = []string{"head", "tick", "contact"}

// ParseOwner reads the values of OwnerFields as HMGET gives them. All nil is an owner that is not
// present; anything unreadable is a *fence.CorruptError.
func ParseOwner(tile fence.TileID, v []any) (fence.Owner, error) {
	if len(v) == 3 && v[0] == nil && v[1] == nil && v[2] == nil {
		return fence.Owner{Tile: tile}, nil
	}
	p := Values{All: v}
	o := fence.Owner{Tile: tile, Position: p.Position(0), Tick: fence.Tick(p.Number(1)), Contact: p.Text(2)}
	o.Epoch = o.Position.Epoch
	if p.Bad || o.Epoch == 0 || o.Contact == "" || len(o.Contact) > fence.MaxContact {
		return fence.Owner{}, &fence.CorruptError{Tile: tile, What: "owner hash", At: o.Position,
			Detail: "head, tick or contact is missing or unreadable; delete the key to let the owner write it again, " +
				"or run tilectl repair"}
	}
	return o, nil
}

// Values reads fields of a reply; after anything unreadable Bad is set.
type Values struct {
	All []any
	Bad bool
}

// Text is a field.
func (p *Values) Text(i int) string {
	if i >= len(p.All) {
		p.Bad = true
		return ""
	}
	s, ok := p.All[i].(string)
	p.Bad = p.Bad || !ok
	return s
}

// Number is a field that has one.
func (p *Values) Number(i int) uint64 {
	n, err := fence.ParseNumber(p.Text(i))
	p.Bad = p.Bad || err != nil
	return n
}

// Position is a field that has one.
func (p *Values) Position(i int) fence.Position {
	at, err := fence.ParsePosition(p.Text(i))
	p.Bad = p.Bad || err != nil
	return at
}
