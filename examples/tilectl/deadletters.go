package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// letterRow is one dead letter, and what happened to it.
type letterRow struct {
	Letter string            `json:"letter"`
	Seq    fence.Seq         `json:"seq"`
	Epoch  fence.Epoch       `json:"epoch"`
	Reason string            `json:"reason"` // as when it was put aside
	Now    string            `json:"now"`    // readable, published, dropped, would be …; or why it still cannot be read
	Fields map[string][]byte `json:"fields"`

	entry fence.Entry
	err   error // why it cannot be read
}

// letters reads a tile's dead letters: all of them, or those named. damage is what of the list cannot be read.
func (t *tool) letters(ctx context.Context, args []string) (id fence.TileID, rows []letterRow, damage, err error) {
	id = tileOf(args[0])
	all, damage := t.log.DeadLetters(ctx, id)
	if damage != nil && !errors.Is(damage, fence.ErrCorrupt) {
		return 0, nil, nil, damage
	}
	for i := range all {
		if names := args[1:]; len(names) == 0 || slices.Contains(names, all[i].Letter) {
			rows = append(rows, letterRowOf(&all[i]))
		}
	}
	for _, name := range args[1:] {
		if !slices.ContainsFunc(rows, func(r letterRow) bool { return r.Letter == name }) {
			return 0, nil, nil, fmt.Errorf("tile %s has no dead letter %q", id, name)
		}
	}
	return id, rows, damage, nil
}

func letterRowOf(p *stream.Poison) letterRow {
	r := letterRow{Letter: p.Letter, Seq: p.Seq, Epoch: p.Epoch, Reason: p.Reason, Now: "readable",
		Fields: map[string][]byte{}}
	for name, value := range p.Fields {
		r.Fields[name] = []byte(value)
	}
	if r.entry, r.err = stream.EntryOf(p); r.err != nil {
		r.Now = r.err.Error()
	}
	return r
}

func (t *tool) printLetters(rows []letterRow) error {
	return printTable(t, "LETTER SEQ EPOCH NOW FIELDS REASON", rows, func(r *letterRow) []any {
		names := make([]string, 0, len(r.Fields))
		for name, value := range r.Fields {
			names = append(names, fmt.Sprintf("%q(%d)", name, len(value)))
		}
		slices.Sort(names)
		return []any{r.Letter, r.Seq, r.Epoch, r.Now, fmt.Sprint(names), r.Reason}
	})
}

func listDeadLetters(ctx context.Context, t *tool, args []string) error {
	_, rows, damage, err := t.letters(ctx, args)
	if err != nil {
		return err
	}
	return errors.Join(t.printLetters(rows), damage)
}

// errKept ends the program with status 1 after the rest has been done.
var errKept = errors.New("some dead letters are kept: this version cannot read them either")

// replayDeadLetters publishes the letters that can be read, oldest first, and removes each that was published.
// Relays ignore what they hold already, or have passed by a snapshot.
func replayDeadLetters(ctx context.Context, t *tool, args []string) error {
	id, rows, damage, err := t.letters(ctx, args)
	if err != nil {
		return err
	}
	kept := false
	for i := range rows {
		r := &rows[i]
		switch {
		case r.err != nil:
			kept = true
		case t.options.dryRun:
			r.Now = "would be published"
		case err == nil:
			if err = t.replay(ctx, id, r); err != nil {
				r.Now = "failed: " + err.Error()
			}
		default:
			r.Now = "not tried"
		}
	}
	err = errors.Join(t.printLetters(rows), err, damage)
	if err == nil && kept {
		err = errKept
	}
	return err
}

func (t *tool) replay(ctx context.Context, id fence.TileID, r *letterRow) error {
	if _, err := t.publisher.Publish(ctx, []fanout.Message{{Tile: id, Data: r.entry.Frame}}); err != nil {
		return fmt.Errorf("letter %s may not have been published and is kept: %w", r.Letter, err)
	}
	r.Now = "published"
	found, err := t.log.RemoveDeadLetter(ctx, id, r.Letter)
	switch {
	case err != nil:
		return fmt.Errorf("letter %s was published but may not have been removed; publishing it again does no harm: %w",
			r.Letter, err)
	case !found:
		r.Now = "published; already removed by another client"
	}
	return nil
}

// dropDeadLetters deletes letters that are not needed.
func dropDeadLetters(ctx context.Context, t *tool, args []string) error {
	id, rows, damage, err := t.letters(ctx, args)
	if err != nil {
		return err
	}
	if t.options.dryRun {
		for i := range rows {
			rows[i].Now = "would be dropped"
		}
		return errors.Join(t.printLetters(rows), damage)
	}
	if len(rows) > 0 {
		if err := t.confirm("%d dead letters of tile %s will be deleted unread.", len(rows), id); err != nil {
			return err
		}
	}
	for i := range rows {
		found, err := t.log.RemoveDeadLetter(ctx, id, rows[i].Letter)
		if err != nil {
			return errors.Join(t.printLetters(rows[:i]), fmt.Errorf("letter %s: %w", rows[i].Letter, err))
		}
		if rows[i].Now = "dropped"; !found {
			rows[i].Now = "already removed by another client"
		}
	}
	return errors.Join(t.printLetters(rows), damage)
}

// confirm says what will be lost and asks, unless -yes has answered; anything but yes is an error.
func (t *tool) confirm(format string, args ...any) error {
	if t.options.yes {
		return nil
	}
	t.errs.printf(format+" Type yes to continue: ", args...)
	answer, _ := bufio.NewReader(t.in).ReadString('\n') // an end of input is no answer
	if strings.TrimSpace(answer) != "yes" {
		t.errs.printf("\n")
		return errors.New("nothing was removed; -yes skips the question")
	}
	return nil
}
