package dynamocheckpoint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/wait"
)

// Seal implements checkpoint.JournalStore.
func (st *store) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	const op = "journal seal"
	if err := cmp.Or(checkpoint.ValidateSeal(tile, epoch), guard.Ended(ctx, op, tile)); err != nil {
		return err
	}
	err := st.updateHead(ctx, &dynamodb.UpdateItemInput{
		Key:                      key(tile, journalPart),
		UpdateExpression:         aws.String("SET #v = :v, #sealed = :epoch, #end = if_not_exists(#end, :end)"),
		ConditionExpression:      aws.String("attribute_not_exists(#part) OR (#v = :v AND #sealed <= :epoch)"),
		ExpressionAttributeNames: dynamotx.Names("part", "v", "sealed", "end"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":v": number(journalVersion), ":epoch": number(uint64(epoch)), ":end": text(fence.Position{}.String()),
		},
	})
	condition, refused := errors.AsType[*types.ConditionalCheckFailedException](err)
	switch {
	case err == nil:
		return nil
	case !refused:
		return failed(ctx, op, tile, dynamotx.Outcome(err), err)
	}
	head, err := parseJournal(tile, condition.Item)
	if err == nil {
		err = cmp.Or(head.Seal(tile, epoch), refusedWithoutReason(ctx, op, tile))
	}
	return err
}

// Base implements checkpoint.JournalStore. The snapshot goes first: the journal's end must not be past what a reader
// finds. What the journal lacks at or below it is no longer missing, so it is the floor, too.
func (st *store) Base(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := checkpoint.PutBase(ctx, st, tile, s); err != nil {
		return err
	}
	for {
		head, found, err := st.journal(ctx, tile)
		if err != nil {
			return maybeFailed(ctx, "journal base", tile, fence.ErrNotApplied, err)
		}
		if err = head.Base(tile, s.Position); err != nil {
			return err
		}
		u := &dynamodb.UpdateItemInput{
			Key:                      key(tile, journalPart),
			UpdateExpression:         aws.String("SET #v = :v, #sealed = :epoch, #end = :end, #floor = :seq"),
			ConditionExpression:      aws.String("attribute_not_exists(#part)"),
			ExpressionAttributeNames: dynamotx.Names("part", "v", "sealed", "end", "floor"),
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":v": number(journalVersion), ":epoch": number(uint64(s.Epoch)),
				":end": text(s.Position.String()), ":seq": number(uint64(s.Seq)),
			},
		}
		if found {
			u.ConditionExpression = aws.String(
				"attribute_exists(#part) AND #v = :v AND #sealed = :was AND #end = :wasEnd")
			u.ExpressionAttributeValues[":was"] = number(uint64(head.Sealed))
			u.ExpressionAttributeValues[":wasEnd"] = text(head.End.String())
		}
		err = st.updateHead(ctx, u)
		if _, changed := errors.AsType[*types.ConditionalCheckFailedException](err); changed {
			continue // by another process, or by this very request, whose answer was lost
		}
		if err != nil {
			err = failed(ctx, "journal base", tile, dynamotx.Outcome(err), err)
		}
		return err
	}
}

// updateHead makes one conditional write to the head of a tile's journal.
func (st *store) updateHead(ctx context.Context, u *dynamodb.UpdateItemInput) error {
	u.TableName = aws.String(st.table)
	u.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	_, err := st.client.UpdateItem(ctx, u)
	return err
}

func refusedWithoutReason(ctx context.Context, op string, tile fence.TileID) error {
	return failed(ctx, op, tile, fence.ErrNotApplied, errors.New("the server refused a condition that holds"))
}

// Append implements checkpoint.JournalStore. It is one transaction: the head's end moves from the position that the
// entry follows to the entry, if the seal is the entry's, and the entry is put with all its chunks.
func (st *store) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	const op = "journal append"
	if err := cmp.Or(checkpoint.ValidateEntry(tile, &e), guard.Ended(ctx, op, tile)); err != nil {
		return err
	}
	items := append([]types.TransactWriteItem{{Update: st.moveEnd(tile, &e)}}, st.putEntry(tile, &e)...)
	refused, err := dynamotx.Transact(ctx, st.client, nil, items...)
	switch {
	case err != nil:
		return failed(ctx, op, tile, dynamotx.Outcome(err), err)
	case refused == nil:
		return nil
	}
	head, err := parseJournal(tile, refused[0].Item)
	if err != nil {
		return err
	}
	write, err := head.Append(tile, &e)
	if write {
		err = refusedWithoutReason(ctx, op, tile)
	}
	return err
}

// moveEnd is the condition of an Append, and makes the entry the journal's end.
func (st *store) moveEnd(tile fence.TileID, e *fence.Entry) *types.Update {
	return &types.Update{
		TableName: aws.String(st.table), Key: key(tile, journalPart),
		UpdateExpression:         aws.String("SET #end = :end"),
		ConditionExpression:      aws.String("#v = :v AND #sealed = :epoch AND #end = :prev"),
		ExpressionAttributeNames: dynamotx.Names("v", "sealed", "end"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":v": number(journalVersion), ":epoch": number(uint64(e.Epoch)),
			":prev": text(e.Prev.String()), ":end": text(e.Position.String()),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// putEntry puts an entry and its chunks, in place of what an earlier owner has at its sequence.
func (st *store) putEntry(tile fence.TileID, e *fence.Entry) []types.TransactWriteItem {
	part := entryPart(e.Seq)
	var chunks [][]byte
	if len(e.Frame) > st.chunkSize {
		chunks = slices.Collect(slices.Chunk(e.Frame, st.chunkSize))
	}
	put := func(item map[string]types.AttributeValue) types.TransactWriteItem {
		return types.TransactWriteItem{Put: &types.Put{TableName: aws.String(st.table), Item: item}}
	}
	puts := []types.TransactWriteItem{put(entryItem(tile, e, len(chunks)))}
	for i, c := range chunks {
		item := key(tile, entryChunkPart(part, e.Epoch, i))
		item["frame"] = &types.AttributeValueMemberB{Value: c}
		puts = append(puts, put(item))
	}
	return puts
}

// Truncate implements checkpoint.JournalStore. What other calls left behind, such as the chunks of an entry that
// was replaced, goes with the entries.
func (st *store) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	const op = "journal truncate"
	if err := checkpoint.ValidateJournalSeq(tile, upTo); err != nil {
		return err
	}
	// Most tiles have no journal, and asking is cheaper than writing.
	_, found, err := st.journal(ctx, tile)
	if err != nil || !found {
		return maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	var entries, chunks []string
	var highest fence.Seq
	err = st.journalParts(ctx, tile, 0, upTo, []string{"part", "seq"},
		func(item map[string]types.AttributeValue) error {
			r := itemReader{dynamotx.Reader{Item: item}}
			if part := r.Text("part"); isEntryPart(part) {
				entries, highest = append(entries, part), fence.Seq(r.number("seq"))
			} else {
				chunks = append(chunks, part)
			}
			return r.Err
		})
	if err != nil {
		return maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	if len(entries) > 0 {
		if err = st.noteFloor(ctx, tile, highest); err == nil {
			// An entry goes before its chunks, so that no reader finds one without them.
			err = st.remove(ctx, tile, entries)
		}
	}
	if err == nil {
		err = st.remove(ctx, tile, chunks)
	}
	return maybeFailed(ctx, op, tile, fence.ErrUnknownOutcome, err)
}

// noteFloor says in the head up to where entries may be missing without being lost.
func (st *store) noteFloor(ctx context.Context, tile fence.TileID, floor fence.Seq) error {
	err := st.updateHead(ctx, &dynamodb.UpdateItemInput{
		Key:              key(tile, journalPart),
		UpdateExpression: aws.String("SET #floor = :floor"),
		ConditionExpression: aws.String(
			"attribute_exists(#part) AND (attribute_not_exists(#floor) OR #floor < :floor)"),
		ExpressionAttributeNames:  dynamotx.Names("part", "floor"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":floor": number(uint64(floor))},
	})
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return nil // another process has truncated further
	}
	return err
}

// How often Tail reads what it has caught in the middle of a write, and how long it waits the first time, which
// doubles: 2.5 seconds in all.
const (
	tailReads = 8
	tailPause = 20 * time.Millisecond
)

// Tail implements checkpoint.JournalStore.
//
// A query may see a transaction in part: the entry and not yet all of its chunks, or the head's new end and not yet
// the entry there. Tail then reads again. The end is what makes a Seal final: a transaction that passed the check
// before the Seal has moved it, so a Tail after the Seal knows which entry has to be there.
func (st *store) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	const op = "journal tail"
	if err := checkpoint.ValidateJournalSeq(tile, after); err != nil {
		return nil, err
	}
	for read := 1; ; read++ {
		head, _, err := st.journal(ctx, tile)
		if err != nil {
			return nil, maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
		}
		t := tailReader{tile: tile}
		err = st.journalParts(ctx, tile, after+1, toTheEnd, nil, t.add)
		if err == nil {
			err = t.finish(head, after)
		}
		if _, partly := errors.AsType[*partialError](err); !partly {
			return t.entries, maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
		}
		if read == tailReads {
			return nil, &fence.CorruptError{Tile: tile, What: "journal", At: t.current.Position, Detail: err.Error()}
		}
		if !wait.For(ctx, tailPause<<(read-1)) {
			return nil, guard.Ended(ctx, op, tile)
		}
	}
}

// journal reads the head of a tile's journal.
func (st *store) journal(ctx context.Context, tile fence.TileID) (head journalHead, found bool, err error) {
	out, err := st.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(st.table), Key: key(tile, journalPart), ConsistentRead: aws.Bool(true),
	})
	if err != nil || out.Item == nil {
		return journalHead{}, false, err
	}
	head, err = parseJournal(tile, out.Item)
	return head, err == nil, err
}

// toTheEnd is above every sequence, as the end of a range has to be that may begin after the highest.
const toTheEnd fence.Seq = math.MaxUint64

// journalParts goes through the items of a tile's entries from one sequence to another, both included: each
// entry before its chunks. Without attributes to ask for, it reads whole items.
func (st *store) journalParts(ctx context.Context, tile fence.TileID, from, to fence.Seq, attributes []string,
	each func(item map[string]types.AttributeValue) error) error {
	names := dynamotx.Names(append(attributes, "tile", "part")...)
	var projection *string
	if len(attributes) > 0 {
		projection = aws.String("#" + strings.Join(attributes, ", #"))
	}
	pages := dynamodb.NewQueryPaginator(st.client, &dynamodb.QueryInput{
		TableName: aws.String(st.table), ConsistentRead: aws.Bool(true),
		KeyConditionExpression:   aws.String("#tile = :tile AND #part BETWEEN :from AND :to"),
		ExpressionAttributeNames: names, ProjectionExpression: projection,
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":tile": text(tile.String()), ":from": text(entryPart(from)), ":to": text(entryPart(to) + afterAll),
		},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return err
		}
		for _, item := range page.Items {
			if err := each(item); err != nil {
				return err
			}
		}
	}
	return nil
}

// JournalHead implements checkpoint.JournalStore. It is billed for reading the tile's whole journal.
func (st *store) JournalHead(ctx context.Context, tile fence.TileID) (checkpoint.JournalHead, error) {
	const op = "journal head"
	if err := guard.Tile(tile); err != nil {
		return checkpoint.JournalHead{}, err
	}
	head, _, err := st.journal(ctx, tile)
	if err != nil {
		return checkpoint.JournalHead{}, maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	h := checkpoint.JournalHead{Tile: tile, JournalEnd: head.JournalEnd}
	attributes := []string{"part", "v", "epoch", "seq", "chain", "size"}
	err = st.journalParts(ctx, tile, 0, toTheEnd, attributes, func(item map[string]types.AttributeValue) error {
		r := itemReader{dynamotx.Reader{Item: item}}
		if !isEntryPart(r.Text("part")) {
			return nil
		}
		at, err := entryPosition(tile, item)
		h.Add(at, int(r.number("size")))
		return cmp.Or(err, corruptEntry(tile, at, r.Err))
	})
	if err != nil {
		return checkpoint.JournalHead{}, maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	return h, nil
}

// maybeFailed classifies an error of the SDK as failed does; nil and damage stay what they are.
func maybeFailed(ctx context.Context, op string, tile fence.TileID, outcome, err error) error {
	if err == nil || errors.Is(err, fence.ErrCorrupt) {
		return err
	}
	return failed(ctx, op, tile, outcome, err)
}

// partialError is a journal that was read while it was written, or that has lost something.
type partialError struct{ what string }

func (e *partialError) Error() string { return e.what }

func partial(format string, args ...any) error { return &partialError{fmt.Sprintf(format, args...)} }
