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
)

var _ checkpoint.Journal = (*Store)(nil)

// journalNames are the placeholders of the attributes that conditions on the journal name.
func journalNames(names ...string) map[string]string {
	m := map[string]string{}
	for _, n := range names {
		m["#"+n] = n
	}
	return m
}

// Seal implements checkpoint.Journal.
func (st *Store) Seal(ctx context.Context, tile fence.TileID, epoch fence.Epoch) error {
	const op = "journal seal"
	if err := checkpoint.CheckSeal(tile, epoch); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return failed(ctx, op, tile, fence.ErrNotApplied, context.Cause(ctx))
	}
	err := st.unlessBusy(ctx, func() error {
		_, err := st.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: aws.String(st.table), Key: key(tile, journalPart),
			UpdateExpression:         aws.String("SET #v = :v, #sealed = :epoch"),
			ConditionExpression:      aws.String("attribute_not_exists(#part) OR (#v = :v AND #sealed <= :epoch)"),
			ExpressionAttributeNames: journalNames("part", "v", "sealed"),
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":v": number(journalVersion), ":epoch": number(uint64(epoch)),
			},
			ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
		})
		return err
	})
	if err == nil {
		return nil
	}
	condition, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return failed(ctx, op, tile, doubt(err), err)
	}
	head, err := parseJournal(tile, condition.Item)
	if err != nil {
		return err
	}
	return &checkpoint.SealedError{Tile: tile, Sealed: head.sealed, Presented: epoch}
}

// Append implements checkpoint.Journal. It is one transaction: the head's seal is checked, the head notes
// the entry as the last one, and the entry is put with all its chunks.
func (st *Store) Append(ctx context.Context, tile fence.TileID, e fence.Entry) error {
	const op = "journal append"
	if err := checkpoint.CheckEntry(tile, &e); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return failed(ctx, op, tile, fence.ErrNotApplied, context.Cause(ctx))
	}
	items := []types.TransactWriteItem{{Update: st.noteLast(tile, &e)}}
	items = append(items, st.putEntry(tile, &e)...)
	var refusals []refusal
	err := st.unlessBusy(ctx, func() (err error) {
		refusals, err = st.transact(ctx, items)
		return err
	})
	if err != nil {
		return failed(ctx, op, tile, doubt(err), err)
	}
	if refusals == nil {
		return nil
	}
	return refusedAppend(ctx, op, tile, &e, refusals)
}

// refusedAppend says why an Append was refused, by what the head and the entry were at that moment.
func refusedAppend(ctx context.Context, op string, tile fence.TileID, e *fence.Entry, refusals []refusal) error {
	sealed := e.Epoch
	if refusals[0].refused {
		head, err := parseJournal(tile, refusals[0].item)
		if err != nil {
			return err
		}
		sealed = head.sealed
	}
	var stored fence.Position
	if refusals[1].refused {
		var err error
		if stored, err = entryPosition(tile, refusals[1].item); err != nil {
			return err
		}
	}
	write, err := checkpoint.JudgeAppend(tile, e, sealed, stored)
	if write {
		err = failed(ctx, op, tile, fence.ErrNotApplied, errors.New("the server refused a condition that holds"))
	}
	return err
}

// noteLast makes the entry the last one of the journal, if the journal is sealed for its epoch.
func (st *Store) noteLast(tile fence.TileID, e *fence.Entry) *types.Update {
	return &types.Update{
		TableName: aws.String(st.table), Key: key(tile, journalPart),
		UpdateExpression:         aws.String("SET #last = :last"),
		ConditionExpression:      aws.String("#v = :v AND #sealed = :epoch"),
		ExpressionAttributeNames: journalNames("v", "sealed", "last"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":v": number(journalVersion), ":epoch": number(uint64(e.Epoch)), ":last": number(uint64(e.Seq)),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// putEntry puts an entry and its chunks, if nothing or an entry of a lower epoch is at its sequence.
func (st *Store) putEntry(tile fence.TileID, e *fence.Entry) []types.TransactWriteItem {
	part := entryPart(e.Seq)
	var chunks [][]byte
	if len(e.Frame) > st.chunkSize {
		chunks = slices.Collect(slices.Chunk(e.Frame, st.chunkSize))
	}
	puts := []types.TransactWriteItem{{Put: &types.Put{
		TableName: aws.String(st.table), Item: entryItem(tile, e, len(chunks)),
		ConditionExpression:                 aws.String("attribute_not_exists(#part) OR (#v = :v AND #epoch < :epoch)"),
		ExpressionAttributeNames:            journalNames("part", "v", "epoch"),
		ExpressionAttributeValues:           map[string]types.AttributeValue{":v": number(journalVersion), ":epoch": number(uint64(e.Epoch))},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}}}
	for i, c := range chunks {
		item := key(tile, entryChunkPart(part, e.Epoch, i))
		item["frame"] = &types.AttributeValueMemberB{Value: c}
		puts = append(puts, types.TransactWriteItem{Put: &types.Put{TableName: aws.String(st.table), Item: item}})
	}
	return puts
}

// Truncate implements checkpoint.Journal. What other calls left behind, such as the chunks of an entry that
// was replaced, goes with the entries.
func (st *Store) Truncate(ctx context.Context, tile fence.TileID, upTo fence.Seq) error {
	const op = "journal truncate"
	if err := checkpoint.CheckJournalSeq(tile, upTo); err != nil {
		return err
	}
	// Most tiles have no journal, and asking is cheaper than writing.
	_, found, err := st.journal(ctx, tile)
	if err != nil || !found {
		return maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	var entries, chunks []string
	var highest fence.Seq
	err = st.journalParts(ctx, tile, 0, upTo, []string{"part", "seq"}, func(item map[string]types.AttributeValue) error {
		r := itemReader{item: item}
		if part := r.text("part"); isEntryPart(part) {
			entries, highest = append(entries, part), fence.Seq(r.number("seq"))
		} else {
			chunks = append(chunks, part)
		}
		return r.err
	})
	if err != nil {
		return maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	if len(entries) > 0 {
		if err = st.noteFloor(ctx, tile, highest); err == nil {
			// An entry goes before its chunks, so that no reader finds one without them.
			err = st.unlessBusy(ctx, func() error { return st.remove(ctx, tile, entries) })
		}
	}
	if err == nil {
		err = st.remove(ctx, tile, chunks)
	}
	return maybeFailed(ctx, op, tile, fence.ErrUnknownOutcome, err)
}

// noteFloor says in the head up to where entries may be missing without being lost.
func (st *Store) noteFloor(ctx context.Context, tile fence.TileID, floor fence.Seq) error {
	err := st.unlessBusy(ctx, func() error {
		_, err := st.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
			TableName: aws.String(st.table), Key: key(tile, journalPart),
			UpdateExpression:          aws.String("SET #floor = :floor"),
			ConditionExpression:       aws.String("attribute_exists(#part) AND (attribute_not_exists(#floor) OR #floor < :floor)"),
			ExpressionAttributeNames:  journalNames("part", "floor"),
			ExpressionAttributeValues: map[string]types.AttributeValue{":floor": number(uint64(floor))},
		})
		return err
	})
	if _, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return nil // somebody has truncated further
	}
	return err
}

// How often Tail reads what it has caught in the middle of a write, and how long it waits the first time, which
// doubles: 2.5 seconds in all.
const (
	tailReads = 8
	tailPause = 20 * time.Millisecond
)

// Tail implements checkpoint.Journal.
//
// A query may see a transaction in part: the entry and not yet all of its chunks, or the head's note of the
// last entry and not yet the entry. Tail then reads again. The note is what makes a Seal final: a
// transaction that passed the check before the Seal has left it in the head, so a Tail after the Seal knows
// which entry has to be there.
func (st *Store) Tail(ctx context.Context, tile fence.TileID, after fence.Seq) ([]fence.Entry, error) {
	const op = "journal tail"
	if err := checkpoint.CheckJournalSeq(tile, after); err != nil {
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
		if err := pause(ctx, tailPause<<(read-1)); err != nil {
			return nil, failed(ctx, op, tile, fence.ErrNotApplied, err)
		}
	}
}

// journal reads the head of a tile's journal.
func (st *Store) journal(ctx context.Context, tile fence.TileID) (head journalHead, found bool, err error) {
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
func (st *Store) journalParts(ctx context.Context, tile fence.TileID, from, to fence.Seq, attributes []string,
	each func(item map[string]types.AttributeValue) error) error {
	names := journalNames(append(attributes, "tile", "part")...)
	var projection *string
	if len(attributes) > 0 {
		projection = aws.String("#" + strings.Join(attributes, ", #"))
	}
	pages := dynamodb.NewQueryPaginator(st.client, &dynamodb.QueryInput{
		TableName: aws.String(st.table), ConsistentRead: aws.Bool(true),
		KeyConditionExpression: aws.String("#tile = :tile AND #part BETWEEN :from AND :to"), ExpressionAttributeNames: names,
		ProjectionExpression: projection,
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

// JournalHead implements checkpoint.Journal. It is billed for reading the tile's whole journal.
func (st *Store) JournalHead(ctx context.Context, tile fence.TileID) (checkpoint.JournalHead, error) {
	const op = "journal head"
	if err := checkpoint.CheckTile(tile); err != nil {
		return checkpoint.JournalHead{}, err
	}
	head, _, err := st.journal(ctx, tile)
	if err != nil {
		return checkpoint.JournalHead{}, maybeFailed(ctx, op, tile, fence.ErrNotApplied, err)
	}
	h := checkpoint.JournalHead{Tile: tile, Sealed: head.sealed}
	attributes := []string{"part", "v", "epoch", "seq", "chain", "size"}
	err = st.journalParts(ctx, tile, 0, toTheEnd, attributes, func(item map[string]types.AttributeValue) error {
		r := itemReader{item: item}
		if !isEntryPart(r.text("part")) {
			return nil
		}
		at, err := entryPosition(tile, item)
		h.Add(at, int(r.number("size")))
		return cmp.Or(err, corruptEntry(tile, at, r.err))
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
