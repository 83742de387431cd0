package dynamocheckpoint

import (
	"bytes"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

// journalVersion is the attribute v of a journal's head and entries.
const journalVersion = 1

const (
	journalPart = "journal" // the head
	entryRoot   = "journal/"
)

func entryPart(seq fence.Seq) string { return fmt.Sprintf("%s%016x", entryRoot, uint64(seq)) }

// entryChunkPart names a chunk by its entry's epoch, too, so that an entry that replaces one of a lower epoch
// has chunks of its own.
func entryChunkPart(entry string, epoch fence.Epoch, index int) string {
	return fmt.Sprintf("%s/%016x/%04x", entry, uint64(epoch), index)
}

// isEntryPart tells an entry from a chunk.
func isEntryPart(part string) bool { return len(part) == len(entryRoot)+16 }

// journalHead is the item that says which owner may append to a tile's journal, and where.
type journalHead struct {
	checkpoint.JournalEnd
	floor fence.Seq // entries at or below it may have been removed
}

func parseJournal(tile fence.TileID, item map[string]types.AttributeValue) (h journalHead, err error) {
	if item == nil {
		return journalHead{}, nil // an Append without a Seal
	}
	r := itemReader{dynamotx.Reader{Item: item}}
	r.version(journalVersion)
	h.Sealed = fence.Epoch(r.number("sealed"))
	h.End = r.position("end")
	if item["floor"] != nil {
		h.floor = fence.Seq(r.number("floor"))
	}
	if r.Err != nil {
		return journalHead{}, &fence.CorruptError{Tile: tile, What: "journal head", At: fence.Position{Epoch: h.Sealed},
			Detail: r.Err.Error()}
	}
	return h, nil
}

// entryItem is an entry as an item; its frame is elsewhere if there are chunks.
func entryItem(tile fence.TileID, e *fence.Entry, chunks int) map[string]types.AttributeValue {
	item := key(tile, entryPart(e.Seq))
	item["v"] = number(journalVersion)
	item["epoch"] = number(uint64(e.Epoch))
	item["seq"] = number(uint64(e.Seq))
	item["chain"] = text(e.Chain.String())
	item["size"] = number(uint64(len(e.Frame)))
	item["chunks"] = number(uint64(chunks))
	if chunks == 0 {
		item["frame"] = &types.AttributeValueMemberB{Value: e.Frame}
	}
	return item
}

// entryPosition reads an entry's position.
func entryPosition(tile fence.TileID, item map[string]types.AttributeValue) (fence.Position, error) {
	r := itemReader{dynamotx.Reader{Item: item}}
	r.version(journalVersion)
	at := fence.Position{Epoch: fence.Epoch(r.number("epoch")), Seq: fence.Seq(r.number("seq"))}
	chain, err := fence.ParseChain(r.Text("chain"))
	at.Chain = chain
	return at, corruptEntry(tile, at, r.Err, err)
}

// corruptEntry is nil if all errors are.
func corruptEntry(tile fence.TileID, at fence.Position, errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return &fence.CorruptError{Tile: tile, What: "journal entry", At: at, Detail: err.Error()}
		}
	}
	return nil
}

// parseEntry reads an entry; the frame is missing if chunks is not zero.
func parseEntry(tile fence.TileID, item map[string]types.AttributeValue) (e fence.Entry, size, chunks int, err error) {
	if e.Position, err = entryPosition(tile, item); err != nil {
		return e, 0, 0, err
	}
	r := itemReader{dynamotx.Reader{Item: item}}
	size, chunks = int(r.number("size")), int(r.number("chunks"))
	part := r.Text("part")
	if b, ok := item["frame"].(*types.AttributeValueMemberB); ok {
		e.Frame = b.Value
	}
	if r.Err == nil && (part != entryPart(e.Seq) || size > fence.MaxFrame || chunks > size) {
		r.Err = fmt.Errorf("%d bytes in %d chunks under the key %q", size, chunks, part)
	}
	return e, size, chunks, corruptEntry(tile, e.Position, r.Err)
}

// tailReader puts a journal's items together: each entry comes before its chunks.
type tailReader struct {
	tile    fence.TileID
	entries []fence.Entry

	current fence.Entry // whose chunks are being read
	chunks  [][]byte
	size    int
	want    int // chunks still to come; zero: there is no current entry
}

func (t *tailReader) add(item map[string]types.AttributeValue) error {
	r := itemReader{dynamotx.Reader{Item: item}}
	part := r.Text("part")
	if r.Err != nil {
		return corruptEntry(t.tile, t.current.Position, r.Err)
	}
	if !isEntryPart(part) {
		return t.addChunk(part, item)
	}
	if err := t.whole(); err != nil {
		return err
	}
	e, size, chunks, err := parseEntry(t.tile, item)
	if err != nil {
		return err
	}
	t.current, t.size, t.want, t.chunks = e, size, chunks, nil
	if chunks == 0 {
		return t.done()
	}
	return nil
}

// addChunk takes the chunk if it is the next one of the current entry. Others are left from an entry that
// was replaced or removed.
func (t *tailReader) addChunk(part string, item map[string]types.AttributeValue) error {
	if t.want == 0 || part != entryChunkPart(entryPart(t.current.Seq), t.current.Epoch, len(t.chunks)) {
		return nil
	}
	b, ok := item["frame"].(*types.AttributeValueMemberB)
	if !ok {
		return corruptEntry(t.tile, t.current.Position, fmt.Errorf("chunk %d has no bytes", len(t.chunks)))
	}
	t.chunks = append(t.chunks, b.Value)
	t.want--
	if t.want > 0 {
		return nil
	}
	t.current.Frame = bytes.Join(t.chunks, nil)
	return t.done()
}

// done verifies the current entry and takes it into the tail.
func (t *tailReader) done() error {
	if len(t.current.Frame) != t.size {
		return corruptEntry(t.tile, t.current.Position, fmt.Errorf("%d bytes, not %d", len(t.current.Frame), t.size))
	}
	e, err := checkpoint.ParseEntry(t.tile, t.current.Position, t.current.Frame)
	if err != nil {
		return err
	}
	t.entries = append(t.entries, e)
	return nil
}

// whole says that no chunk of the current entry is missing.
func (t *tailReader) whole() error {
	if t.want > 0 {
		return partial("entry %s: %d chunks are missing", t.current.Position, t.want)
	}
	return nil
}

// finish says that nothing is missing at the end, given the head as it was before the entries were read.
func (t *tailReader) finish(head journalHead, after fence.Seq) error {
	if err := t.whole(); err != nil {
		return err
	}
	if head.End.Seq <= max(after, head.floor) {
		return nil
	}
	for i := len(t.entries) - 1; i >= 0; i-- {
		if t.entries[i].Position == head.End {
			return nil
		}
	}
	return partial("the entry appended last, at %s, is missing", head.End)
}
