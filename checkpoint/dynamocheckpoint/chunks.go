package dynamocheckpoint

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/internal/guard"
)

// sweepEvery is how often a tile's orphans are looked for although this Store left none: another process
// may have, and never come back.
const sweepEvery = time.Hour

// tileMemory is what a Store remembers of a tile between calls.
type tileMemory struct {
	swept time.Time // when orphans were last looked for; zero: there may be some

	// The last chunked attempt, if it ended without an answer. A retry of the same snapshot takes its name,
	// so that it overwrites the same chunks with the same bytes.
	attempt string
	at      fence.Position
	sum     string
}

// begin names an attempt at storing m in chunks.
func (st *store) begin(m *manifest) string {
	st.mu.Lock()
	defer st.mu.Unlock()
	mem := st.tiles[m.Tile]
	st.tiles[m.Tile] = tileMemory{} // whatever comes of it, there will be something to sweep
	if mem.attempt != "" && mem.at == m.Position && mem.sum == m.Sum {
		return mem.attempt
	}
	return rand.Text()
}

// abandon remembers an attempt that ended without an answer.
func (st *store) abandon(m *manifest) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.tiles[m.Tile] = tileMemory{attempt: m.attempt, at: m.Position, sum: m.Sum}
}

// upload writes the blob's chunks and says how many there are.
func (st *store) upload(ctx context.Context, m *manifest, blob []byte) (int, error) {
	prefix := chunkPrefix(m.Position, m.attempt)
	chunks := slices.Collect(slices.Chunk(blob, st.chunkSize))
	err := st.each(ctx, len(chunks), func(ctx context.Context, i int) error {
		item := key(m.Tile, chunkPart(prefix, i))
		item["blob"] = &types.AttributeValueMemberB{Value: chunks[i]}
		_, err := st.client.PutItem(ctx, &dynamodb.PutItemInput{TableName: aws.String(st.table), Item: item})
		return err
	})
	return len(chunks), err
}

// download reads the chunks a manifest names. A missing one is a *fence.CorruptError.
func (st *store) download(ctx context.Context, m *manifest) ([]byte, error) {
	parts := m.chunkParts()
	chunks := make([][]byte, len(parts))
	err := st.each(ctx, len(parts), func(ctx context.Context, i int) error {
		out, err := st.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: aws.String(st.table), Key: key(m.Tile, parts[i]), ConsistentRead: aws.Bool(true),
		})
		if err != nil {
			return err
		}
		b, ok := out.Item["blob"].(*types.AttributeValueMemberB)
		if !ok {
			return &fence.CorruptError{Tile: m.Tile, What: "checkpoint", At: m.Position,
				Detail: fmt.Sprintf("chunk %d of %d is missing", i, len(parts))}
		}
		chunks[i] = b.Value
		return nil
	})
	if err != nil {
		return nil, err
	}
	return bytes.Join(chunks, nil), nil
}

// remove deletes parts of a tile. Deleting what is not there succeeds.
func (st *store) remove(ctx context.Context, tile fence.TileID, parts []string) error {
	return st.each(ctx, len(parts), func(ctx context.Context, i int) error {
		_, err := st.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: aws.String(st.table),
			Key: key(tile, parts[i])})
		return err
	})
}

// each calls f for 0 to n-1, parallel at a time, until one fails.
func (st *store) each(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(st.parallel)
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return f(ctx, i)
		})
	}
	return group.Wait()
}

// collect deletes a tile's chunks that no manifest names and none ever will: those of attempts that
// failed or were overtaken, by any process. It says how many. It is safe at any time, next to any writer:
// an attempt that can still succeed is left alone, and so is a tile without a manifest. Put does it by
// itself as the package comment says. Errors: a *fence.StoreError.
func (st *store) collect(ctx context.Context, tile fence.TileID) (removed int, err error) {
	if err := guard.Tile(tile); err != nil {
		return 0, err
	}
	orphans, err := st.orphans(ctx, tile)
	if err == nil {
		err = st.remove(ctx, tile, orphans)
	}
	if err != nil {
		return 0, failed(ctx, "checkpoint collect", tile, fence.ErrUnknownOutcome, err)
	}
	return len(orphans), nil
}

// sweepIfDue collects orphans if there may be some; inline says that the manifest in force holds its own
// blob, so that the next one leaves nothing behind. The checkpoint is safe without all this, so a failure
// is logged and the next Put tries again.
func (st *store) sweepIfDue(ctx context.Context, tile fence.TileID, inline bool) {
	st.mu.Lock()
	due := time.Since(st.tiles[tile].swept) >= sweepEvery
	st.mu.Unlock()
	if !due {
		return
	}
	now := time.Now()
	if _, err := st.collect(ctx, tile); err != nil {
		st.cfg.Logger.Warn("orphaned checkpoint chunks not collected", "tile", tile.String(), "error", err)
		return
	}
	if inline {
		st.mu.Lock()
		st.tiles[tile] = tileMemory{swept: now}
		st.mu.Unlock()
	}
}

// orphans lists the sort keys of a tile's chunks that may be deleted. The manifest is read first: one
// that comes into force later is past it, and the chunks it names are not touched.
func (st *store) orphans(ctx context.Context, tile fence.TileID) ([]string, error) {
	inForce, found, err := st.head(ctx, tile)
	if err != nil || !found {
		return nil, err
	}
	// Reading is billed by the size of what is passed over, so the chunks in force are left out of the
	// query; that they are also compared below is because deleting is for ever.
	prefix := chunkPrefix(inForce.Position, inForce.attempt)
	var orphans []string
	for _, r := range [...][2]string{{chunkRoot, prefix}, {prefix + afterAll, chunkRoot + afterAll}} {
		pages := dynamodb.NewQueryPaginator(st.client, &dynamodb.QueryInput{
			TableName: aws.String(st.table), ConsistentRead: aws.Bool(true),
			KeyConditionExpression:   aws.String("#tile = :tile AND #part BETWEEN :from AND :to"),
			ProjectionExpression:     aws.String("#part"),
			ExpressionAttributeNames: map[string]string{"#tile": "tile", "#part": "part"},
			ExpressionAttributeValues: map[string]types.AttributeValue{
				":tile": text(tile.String()), ":from": text(r[0]), ":to": text(r[1]),
			},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, err
			}
			for _, item := range page.Items {
				r := itemReader{dynamotx.Reader{Item: item}}
				part := r.Text("part")
				at, attempt, ok := parseChunkPart(part)
				if ok && attempt != inForce.attempt && !checkpoint.Supersedes(at, inForce.Position) {
					orphans = append(orphans, part)
				}
			}
		}
	}
	return orphans, nil
}
