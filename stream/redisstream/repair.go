package redisstream

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
)

//go:embed lua/repair.lua
var repairScript string

// Damage is one thing in the keys of a tile that the library has not written.
type Damage struct {
	Field     string // what is wrong: a key, a field of one, or entries
	Stands    string // what is there; it may hold anything
	CanBe     string
	Remedy    string // what Repair does or, if it is undecided, what the operator can do
	Undecided bool   // Repair leaves it: what an owner had committed there is not known
}

// Examination is what a tile has in the store, and the damage in it.
type Examination struct {
	Tile   fence.TileID
	Damage []Damage
	Owned  bool // there is an owner hash: Repair must come later than its owner's next refresh

	stands []any // what the script compares
	steps  []any
}

// Repairable reports whether Repair would change anything.
func (x *Examination) Repairable() bool { return len(x.steps) > 0 }

// ChangedError says that a tile was not repaired, because it has changed since it was examined. Nothing was written.
type ChangedError struct {
	Tile fence.TileID
	What string // owner, stream, snapshot or marks
}

func (e *ChangedError) Error() string {
	if e.What == "owner" {
		return fmt.Sprintf("tile %s is not repaired: its owner hash moves, so an owner runs it; stop the tile servers "+
			"that run it, owner and followers, and repeat the command", e.Tile)
	}
	return fmt.Sprintf("tile %s is not repaired: its %s changed meanwhile; repeat the command, and stop the tile "+
		"servers that run the tile if it happens again", e.Tile, e.What)
}

// Removable are the names of what Examine can be asked to remove: keys of the tile, and what of the stream comes after
// an entry that the next one does not follow.
var Removable = []string{"owner", "stream", "snapshot", "marks", "dead", "entries"}

// Examine reads all of a tile in one step, and then the rest of its stream, and says what of it neither an owner, nor a
// consumer, nor a trim can have written. epoch is the authority's of the tile, zero if it has none. remove names, of
// Removable, what is to be removed though Examine cannot tell whether an owner has committed it.
//
// Errors: an *fence.ArgumentError if the authority's own epoch cannot be; a *fence.StoreError.
func (l *Log) Examine(ctx context.Context, tile fence.TileID, epoch fence.Epoch, remove ...string) (*Examination,
	error) {
	if err := guard.Call(ctx, "examine", tile); err != nil {
		return nil, err
	}
	if mostEpoch(epoch) > fence.MaxNumber {
		return nil, &fence.ArgumentError{Field: "epoch", Value: epoch, Want: "an epoch that was minted: lower the " +
			"authority's own first, see docs/operations.md, An epoch is impossible"}
	}
	for _, name := range remove {
		if !slices.Contains(Removable, name) {
			return nil, &fence.ArgumentError{Field: "what to delete", Value: name, Want: strings.Join(Removable, ", ")}
		}
	}
	for attempt := 1; ; attempt++ {
		x := &examiner{Examination: &Examination{Tile: tile}, log: l, epoch: epoch, most: mostEpoch(epoch),
			remove: remove}
		changed, err := x.run(ctx)
		if err != nil {
			return nil, &fence.StoreError{Op: "examine", Tile: tile, Outcome: fence.ErrNotApplied, Err: err}
		}
		if !changed || attempt == examineAttempts {
			return x.Examination, nil
		}
	}
}

// examineAttempts bounds how often a tile is examined anew because it changed while it was read.
const examineAttempts = 5

// run examines the tile. If there is damage, it reports whether the tile changed meanwhile: an owner goes on and trims.
func (x *examiner) run(ctx context.Context) (changed bool, err error) {
	reply, err := x.log.repair(ctx, x.Tile, []any{"0"})
	if err == nil {
		err = x.take(reply)
	}
	if err == nil {
		err = x.examine(ctx)
	}
	if err != nil || len(x.Damage) == 0 {
		return false, err
	}
	reply, err = x.log.repair(ctx, x.Tile, slices.Concat([]any{len(x.stands)}, x.stands)) // no steps
	return reply != "ok", err
}

// Repair does what can be done about the damage, all of it in one step, if the tile is as it was examined. Nothing that
// an owner has committed is removed, unless Examine was asked for it. A failover may undo it: examine the tile again.
//
// Errors: a *ChangedError; a *fence.StoreError.
func (l *Log) Repair(ctx context.Context, x *Examination) error {
	if !x.Repairable() {
		return nil
	}
	args := slices.Concat([]any{len(x.stands)}, x.stands, x.steps)
	reply, err := l.repair(ctx, x.Tile, args)
	switch what, _ := reply.(string); {
	case err != nil:
		return &fence.StoreError{Op: "repair", Tile: x.Tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	case what != "ok":
		return &ChangedError{Tile: x.Tile, What: what}
	}
	return nil
}

// repair runs the script.
func (l *Log) repair(ctx context.Context, tile fence.TileID, args []any) (any, error) {
	k := l.functions.World().Keys(tile)
	return l.client.Eval(ctx, repairScript, []string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead}, args...).Result()
}

// take reads the script's reply.
func (x *examiner) take(reply any) error {
	v, _ := reply.([]any)
	if len(v) != 5 {
		return errors.New("unreadable reply")
	}
	x.stands, _ = v[0].([]any)
	seen := slices.Clone(x.stands)
	next := func() (text string, found bool) {
		if len(seen) == 0 {
			return "", false
		}
		text, _ = seen[0].(string)
		seen = seen[1:]
		if len(text) < 1 || text[0] != '+' {
			return "", false
		}
		return text[1:], true
	}
	for i := range x.kinds {
		x.kinds[i], _ = next()
	}
	if x.kinds[ownerKey] == "hash" {
		for i := range x.owner {
			if text, found := next(); found {
				x.owner[i] = text
			}
		}
		x.expires, _ = next()
	}
	if x.kinds[streamKey] == "stream" {
		_, _ = next() // the length is only compared
		x.lastID, _ = next()
	}
	now, _ := v[3].(string)
	ms, err := fence.ParseNumber(now)
	x.now = fence.FromMillis(int64(ms))
	x.snapshot, x.marks = pairs(v[1]), pairs(v[2])
	x.first = firstOf(v[4])
	return err
}

// pairs reads names and values as HGETALL gives them to a script.
func pairs(v any) map[string]string {
	list, _ := v.([]any)
	m := make(map[string]string, len(list)/2)
	for i := 0; i+1 < len(list); i += 2 {
		name, _ := list[i].(string)
		m[name], _ = list[i+1].(string)
	}
	return m
}

// firstOf is the sequence of a stream's first entry, as XRANGE gives it to a script; 0 if there is none.
func firstOf(v any) fence.Seq {
	list, _ := v.([]any)
	if len(list) == 0 {
		return 0
	}
	entry, _ := list[0].([]any)
	if len(entry) == 0 {
		return 0
	}
	id, _ := entry[0].(string)
	return sequenceOf(id)
}

// page is the hundred entries of a stream before an ID, the last first.
func (l *Log) page(ctx context.Context, tile fence.TileID, before string) ([]redis.XMessage, error) {
	return l.client.XRevRangeN(ctx, l.functions.World().Keys(tile).Stream, before, "-", 100).Result()
}
