package redisstream

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream"
)

// marksACall is how many watermarks of one tile one call of the function moves at most.
const marksACall = 16

// Mark implements stream.Log: one pipeline a node, one call for the watermarks of one tile that come together.
func (l *Log) Mark(ctx context.Context, writes []stream.MarkWrite) []error {
	errs := make([]error, len(writes))
	var calls []redislib.FunctionCall
	var of [][]int // the writes of each call
	for i := range writes {
		w := &writes[i]
		if errs[i] = w.Validate(); errs[i] != nil {
			continue
		}
		n := len(calls) - 1
		if n < 0 || calls[n].Tile != w.Tile || len(of[n]) == marksACall {
			calls = append(calls, redislib.FunctionCall{Tile: w.Tile, Function: "tilefence_mark_v1",
				Keys: []string{l.functions.World().Keys(w.Tile).Marks}})
			of = append(of, nil)
			n++
		}
		calls[n].Args = append(calls[n].Args, string(w.Consumer), strconv.FormatUint(uint64(w.Seq), 10), motion(w))
		of[n] = append(of[n], i)
	}
	for n := range calls {
		var shown fence.Epoch
		last := ""
		for _, i := range of[n] {
			shown = max(shown, writes[i].Shown)
			if writes[i].Consumer == stream.BridgeAcked && !writes[i].Last.IsZero() {
				last = writes[i].Last.String()
			}
		}
		calls[n].Args = append(calls[n].Args, strconv.FormatUint(uint64(shown), 10), last)
	}
	if len(calls) > 0 {
		for n, reply := range l.functions.Functions().CallMany(ctx, "mark", calls) {
			for k, i := range of[n] {
				errs[i] = markAnswer(&writes[i], reply, k)
			}
		}
	}
	for _, err := range errs {
		if err != nil {
			return errs
		}
	}
	return nil
}

// motion is how the function is to move a mark.
func motion(w *stream.MarkWrite) string {
	switch {
	case w.Release:
		return "2"
	case w.Rewind:
		return "1"
	}
	return "0"
}

// markAnswer reads the result of the k-th watermark of a call.
func markAnswer(w *stream.MarkWrite, r redislib.FunctionReply, k int) error {
	if r.Err != nil {
		return r.Err
	}
	if len(r.Values) > k+1 {
		trimmed, _ := r.Values[0].(string)
		switch r.Values[k+1] {
		case "ok":
			return nil
		case "full":
			return stream.ErrTooManyMarks
		case "resync":
			if seq, err := fence.ParseNumber(trimmed); err == nil {
				return &stream.ResyncError{Tile: w.Tile, Consumer: w.Consumer, Seq: w.Seq, Trimmed: fence.Seq(seq)}
			}
		}
	}
	return unreadable("mark", w.Tile)
}

func unreadable(op string, tile fence.TileID) error {
	return &fence.StoreError{Op: op, Tile: tile, Outcome: fence.ErrUnknownOutcome, Err: errors.New("unreadable reply")}
}

// Marks implements stream.Log: one pipeline a node.
func (l *Log) Marks(ctx context.Context, tiles []fence.TileID) ([]stream.TileMarks, error) {
	if len(tiles) == 0 {
		return nil, nil
	}
	pipe := l.client.Pipeline()
	reads := make([]*redis.MapStringStringCmd, len(tiles))
	for i, t := range tiles {
		if err := guard.Call(ctx, "read marks", t); err != nil {
			return nil, err
		}
		reads[i] = pipe.HGetAll(ctx, l.functions.World().Keys(t).Marks)
	}
	_, _ = pipe.Exec(ctx) // each read has its own error
	all := make([]stream.TileMarks, len(tiles))
	results := make([]tileRead, len(tiles))
	for i, t := range tiles {
		results[i] = readOf(t, keyed{l.functions.World().Keys(t).Marks, reads[i]})
	}
	failed := l.explain(ctx, "read marks", results)
	for i, t := range tiles {
		if err := results[i].err; err != nil {
			all[i] = stream.TileMarks{Tile: t, Err: err}
			continue
		}
		all[i] = parseMarks(t, reads[i].Val())
	}
	if failed == len(tiles) {
		return nil, all[0].Err
	}
	return all, nil
}

// parseMarks reads the marks hash; a mark that cannot be read, or cannot be, is none.
func parseMarks(tile fence.TileID, m map[string]string) stream.TileMarks {
	all := stream.TileMarks{Tile: tile, Marks: map[stream.Consumer]stream.Mark{}}
	if n, err := fence.ParseNumber(m["trimmed"]); err == nil && fence.Seq(n) <= fence.FarSeq {
		all.Trimmed = fence.Seq(n)
	}
	if n, err := fence.ParseNumber(m["shown"]); err == nil {
		all.Shown = fence.Epoch(n)
	}
	for name, text := range m {
		w := stream.MarkWrite{Tile: tile, Consumer: stream.Consumer(name)}
		if w.Validate() != nil {
			continue
		}
		seq, err1 := fence.ParseNumber(text)
		at, err2 := fence.ParseNumber(m[name+".at"])
		if err1 == nil && err2 == nil && fence.Seq(seq) <= fence.FarSeq {
			mark := stream.Mark{Seq: fence.Seq(seq), Moved: int64(at)}
			if silent, err := fence.ParseNumber(m[name+".silent"]); err == nil && silent > at {
				mark.Silent = int64(silent) // else the mark was written since
			}
			if last, err := fence.ParsePosition(m[name+".last"]); err == nil && last.Seq == mark.Seq {
				mark.Last = last // else the mark was written since by a consumer that did not know it
			}
			all.Marks[w.Consumer] = mark
		}
	}
	return all
}

// Trim implements stream.Log.
func (l *Log) Trim(ctx context.Context, r stream.TrimRequest) (stream.Trimmed, error) {
	if err := r.Validate(); err != nil {
		return stream.Trimmed{}, err
	}
	if err := guard.Call(ctx, "trim", r.Tile); err != nil {
		return stream.Trimmed{}, err
	}
	k := l.functions.World().Keys(r.Tile)
	c := redislib.FunctionCall{Tile: r.Tile, Function: "tilefence_trim_v1",
		Keys: []string{k.Marks, k.Stream, k.Snapshot},
		Args: []any{strconv.FormatInt(r.Lease.Milliseconds(), 10), strconv.FormatInt(r.MaxBytes, 10), "shown"}}
	var all stream.Trimmed
	for {
		values, err := l.functions.Functions().Call(ctx, "trim", c)
		if err != nil {
			return all, err
		}
		t, ok := parseTrimmed(values)
		if !ok {
			return all, unreadable("trim", r.Tile)
		}
		// One call takes a limited number of steps, so that it does not block its server. As long as each call drops
		// marks that none has dropped before, another continues: a consumer that marks in between is the next trim's.
		again := slices.ContainsFunc(t.Evicted, func(c stream.Consumer) bool { return slices.Contains(all.Evicted, c) })
		goesOn := r.MaxBytes > 0 && t.Bytes > r.MaxBytes && len(t.Evicted) > 0 && !again
		t.Removed += all.Removed
		t.Expired, t.Evicted = append(all.Expired, t.Expired...), append(all.Evicted, t.Evicted...)
		if !goesOn {
			return t, nil
		}
		all = t
	}
}

// parseTrimmed reads floor, removed, held, expired, evicted, entries, bytes, shown.
func parseTrimmed(v []any) (t stream.Trimmed, ok bool) {
	if len(v) != 8 {
		return t, false
	}
	floor, ok1 := v[0].(string)
	removed, ok2 := v[1].(int64)
	held, ok3 := v[2].(string)
	expired, ok4 := consumers(v[3])
	evicted, ok5 := consumers(v[4])
	entries, ok6 := v[5].(int64)
	bytes, ok7 := v[6].(int64)
	shown, ok8 := v[7].(string)
	seq, err1 := fence.ParseNumber(floor)
	epoch, err2 := fence.ParseNumber(shown)
	ok = ok1 && ok2 && ok3 && ok4 && ok5 && ok6 && ok7 && ok8 && err1 == nil && err2 == nil
	return stream.Trimmed{Floor: fence.Seq(seq), Removed: int(removed), Held: stream.Consumer(held), Expired: expired,
		Evicted: evicted, Shown: fence.Epoch(epoch), Entries: int(entries), Bytes: bytes}, ok
}

func consumers(v any) (names []stream.Consumer, ok bool) {
	list, ok := v.([]any)
	for _, e := range list {
		name, is := e.(string)
		ok = ok && is
		names = append(names, stream.Consumer(name))
	}
	return names, ok
}

var _ stream.Collector = (*Log)(nil)

// Expire implements stream.Collector: one pipeline a node.
func (l *Log) Expire(ctx context.Context, tiles []stream.Quiet, after time.Duration) []stream.Expiry {
	answers := make([]stream.Expiry, len(tiles))
	var calls []redislib.FunctionCall
	var of []int // the tile of each call
	for i := range tiles {
		q := &tiles[i]
		if answers[i].Err = q.Validate(after); answers[i].Err != nil {
			continue
		}
		k := l.functions.World().Keys(q.Tile)
		calls = append(calls, redislib.FunctionCall{Tile: q.Tile, Function: "tilefence_expire_v1",
			Keys: []string{k.Owner, k.Stream, k.Snapshot, k.Marks, k.Dead},
			Args: []any{q.Durable.String(), strconv.FormatInt(after.Milliseconds(), 10)}})
		of = append(of, i)
	}
	if len(calls) == 0 {
		return answers
	}
	for n, reply := range l.functions.Functions().CallMany(ctx, "expire", calls) {
		answers[of[n]] = expiryOf(calls[n].Tile, reply)
	}
	return answers
}

func expiryOf(tile fence.TileID, r redislib.FunctionReply) stream.Expiry {
	if r.Err != nil {
		return stream.Expiry{Err: r.Err}
	}
	if len(r.Values) == 1 {
		if left, ok := r.Values[0].(int64); ok {
			return stream.Expiry{Expires: left >= 0}
		}
	}
	return stream.Expiry{Err: unreadable("expire", tile)}
}
