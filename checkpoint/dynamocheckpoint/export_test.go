package dynamocheckpoint

import (
	"context"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
)

// SetChunkSize makes snapshots of more than n bytes chunked, so that tests need not write megabytes.
func (st *Store) SetChunkSize(n int) { st.own.chunkSize = n }

// Collect deletes a tile's orphaned chunks.
func (st *Store) Collect(ctx context.Context, tile fence.TileID) (int, error) {
	return st.own.collect(ctx, tile)
}

// SetParallel sets how many chunks of one snapshot are read or written at once.
func (st *Store) SetParallel(n int) { st.own.parallel = n }

// ForgetSweeps makes orphans due to be looked for again, as an hour later or in a new process.
func (st *Store) ForgetSweeps() {
	st.own.mu.Lock()
	defer st.own.mu.Unlock()
	for tile, mem := range st.own.tiles {
		mem.swept = time.Time{}
		st.own.tiles[tile] = mem
	}
}

// Item is an item as DynamoDB gives it.
type Item = map[string]types.AttributeValue

// ReadManifest parses an item, and writes what it holds.
func ReadManifest(tile fence.TileID, item Item) (checkpoint.Head, Item, error) {
	m, err := parseManifest(tile, item)
	if err != nil {
		return checkpoint.Head{}, nil, err
	}
	return m.Head, m.item(), nil
}

// ReadJournal puts a journal's items together.
func ReadJournal(tile fence.TileID, head Item, items []Item) ([]fence.Entry, error) {
	h, err := parseJournal(tile, head)
	if err != nil {
		return nil, err
	}
	t := tailReader{tile: tile}
	for _, item := range items {
		if err := t.add(item); err != nil {
			return nil, err
		}
	}
	return t.entries, t.finish(h, 0)
}

// ReadChunkPart parses the sort key of a chunk, and writes the prefix of its attempt's.
func ReadChunkPart(part string) (prefix string, ok bool) {
	at, attempt, ok := parseChunkPart(part)
	return chunkPrefix(at, attempt), ok
}

// EntryItems writes an entry in one item, or in so many chunks.
func EntryItems(tile fence.TileID, e *fence.Entry, chunks int) (items []Item) {
	items = append(items, entryItem(tile, e, chunks))
	for i := range chunks {
		item := key(tile, entryChunkPart(entryPart(e.Seq), e.Epoch, i))
		from, to := len(e.Frame)*i/chunks, len(e.Frame)*(i+1)/chunks
		item["frame"] = &types.AttributeValueMemberB{Value: e.Frame[from:to]}
		items = append(items, item)
	}
	return items
}
