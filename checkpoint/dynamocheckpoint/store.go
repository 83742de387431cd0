package dynamocheckpoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/setting"
)

// chunkSize is the most bytes of a blob in one item: under DynamoDB's limit of 400 KB with room for the
// other attributes.
const chunkSize = 384 << 10

// attempts is how often a request is made before the Store gives up, with jittered pauses of up to a second.
const attempts = 8

// parallel is how many chunks of one snapshot are read or written at once.
const parallel = 4

// Config holds a Store's options. The zero value of each field means its default.
type Config struct {
	// Logger gets a warning when chunks that are no longer needed could not be deleted. Nil discards.
	Logger *slog.Logger
}

// Store is a checkpoint.Backend in a DynamoDB table. See the package comment.
type Store struct {
	checkpoint.Backend
	fence.WorldKeeper // the table takes the name and the ID of the first world whose ID is known
	own               *store
}

type store struct {
	client    *dynamodb.Client
	table     string
	cfg       Config
	chunkSize int
	parallel  int // chunks of one snapshot that are read or written at once

	mu    sync.Mutex
	tiles map[fence.TileID]tileMemory
}

// New returns a Store in the given table, without any I/O. A *fence.ArgumentError names a missing client
// or table, or an option out of range.
func New(client *dynamodb.Client, table string, cfg *Config) (*Store, error) {
	c := setting.Of(cfg)
	var s setting.Check
	s.Refuse(client == nil, "client", nil, "a DynamoDB client")
	s.Refuse(table == "", "table", table, "the table's name")
	if s.Err != nil {
		return nil, s.Err
	}
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	own := &store{client: dynamotx.Client(client, attempts), table: table, cfg: c, chunkSize: chunkSize,
		parallel: parallel, tiles: map[fence.TileID]tileMemory{}}
	return &Store{own, own, own}, nil
}

// EnterWorld implements fence.WorldKeeper. The table takes the name and the ID of the first world whose ID is known.
func (st *store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return dynamotx.EnterWorld(ctx, st.client, st.table, [2]string{"tile", "part"}, w)
}

// Put implements checkpoint.Store. Chunks of earlier attempts are deleted before it returns; failing at
// that is logged and made up for later, not an error.
func (st *store) Put(ctx context.Context, tile fence.TileID, s fence.Snapshot) error {
	if err := cmp.Or(checkpoint.ValidatePut(tile, &s), guard.Ended(ctx, "checkpoint put", tile)); err != nil {
		return err
	}
	m := manifest{Head: checkpoint.HeadOf(tile, &s)}
	if len(s.Blob) <= st.chunkSize {
		m.attempt, m.blob = rand.Text(), s.Blob
		err := st.putManifest(ctx, &m)
		if err == nil {
			st.sweepIfDue(ctx, tile, true)
		}
		return err
	}
	return st.putChunked(ctx, &m, s.Blob)
}

// putChunked writes the chunks, then the manifest that names them.
func (st *store) putChunked(ctx context.Context, m *manifest, blob []byte) error {
	// The condition on the manifest is what counts. This look beforehand saves uploading what would be
	// refused, and learns which chunks are about to be replaced.
	old, found, err := st.head(ctx, m.Tile)
	if err != nil {
		return failed(ctx, "checkpoint put", m.Tile, fence.ErrNotApplied, err)
	}
	if found {
		if write, err := old.judge(m); !write {
			st.sweepIfDue(ctx, m.Tile, false)
			return err
		}
	}
	m.attempt = st.begin(m)
	if m.chunks, err = st.upload(ctx, m, blob); err != nil {
		st.abandon(m)
		return failed(ctx, "checkpoint put", m.Tile, fence.ErrNotApplied, err)
	}
	err = st.putManifest(ctx, m)
	if err != nil && !errors.Is(err, checkpoint.ErrOlder) {
		st.abandon(m)
		return err
	}
	if err == nil && found {
		// Something that supersedes old is in force, so old's chunks have had their day.
		if e := st.remove(ctx, m.Tile, old.chunkParts()); e != nil {
			st.cfg.Logger.Warn("replaced checkpoint chunks not deleted", "tile", m.Tile.String(), "error", e)
		}
	}
	st.sweepIfDue(ctx, m.Tile, false)
	return err
}

// supersedes is checkpoint.Supersedes as a condition on the manifest in force.
const supersedes = "attribute_not_exists(#part)" +
	" OR (#epoch < :epoch AND #seq <= :seq) OR (#epoch = :epoch AND #seq < :seq)"

// putManifest puts m in force if it supersedes what is. An *checkpoint.OlderError says that it does not
// and never will.
func (st *store) putManifest(ctx context.Context, m *manifest) error {
	_, err := st.client.PutItem(ctx, &dynamodb.PutItemInput{
		TableName:                aws.String(st.table),
		Item:                     m.item(),
		ConditionExpression:      aws.String(supersedes),
		ExpressionAttributeNames: map[string]string{"#part": "part", "#epoch": "epoch", "#seq": "seq"},
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":epoch": number(uint64(m.Epoch)), ":seq": number(uint64(m.Seq)),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	})
	if err == nil {
		return nil
	}
	condition, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return failed(ctx, "checkpoint put", m.Tile, dynamotx.Outcome(err), err)
	}
	old, err := parseManifest(m.Tile, condition.Item)
	if err != nil {
		return err
	}
	// If an earlier try of this very request went through and only its answer was lost, what is stored is
	// the same snapshot, and that is success.
	write, err := old.judge(m)
	if write {
		err = failed(ctx, "checkpoint put", m.Tile, fence.ErrNotApplied,
			errors.New("the server refused a condition that holds"))
	}
	return err
}

// Get implements checkpoint.Store.
func (st *store) Get(ctx context.Context, tile fence.TileID) (fence.Snapshot, bool, error) {
	if err := guard.Tile(tile); err != nil {
		return fence.Snapshot{}, false, err
	}
	var last manifest
	for {
		m, found, err := st.manifest(ctx, tile)
		if err != nil || !found {
			return fence.Snapshot{}, false, err
		}
		s := fence.Snapshot{Position: m.Position, Tick: m.Tick, Contact: m.Contact, Sum: m.Sum, Taken: m.Taken,
			Blob: m.blob}
		if m.chunks > 0 {
			if s.Blob, err = st.download(ctx, &m); err != nil && !errors.Is(err, fence.ErrCorrupt) {
				return fence.Snapshot{}, false, failed(ctx, "checkpoint get", tile, fence.ErrNotApplied, err)
			}
		}
		if err == nil {
			err = s.Verify(tile)
		}
		if err == nil {
			return s, true, nil
		}
		if m.attempt == last.attempt {
			return fence.Snapshot{}, false, err
		}
		// The checkpoint may have been replaced while it was read. If the manifest is still the same, it
		// was not.
		last = m
	}
}

// manifest reads the manifest in force, with its blob.
func (st *store) manifest(ctx context.Context, tile fence.TileID) (m manifest, found bool, err error) {
	out, err := st.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(st.table), Key: key(tile, manifestPart), ConsistentRead: aws.Bool(true),
	})
	if err != nil {
		return manifest{}, false, failed(ctx, "checkpoint get", tile, fence.ErrNotApplied, err)
	}
	if out.Item == nil {
		return manifest{}, false, nil
	}
	m, err = parseManifest(tile, out.Item)
	return m, err == nil, err
}

// head reads the manifest in force without its blob.
func (st *store) head(ctx context.Context, tile fence.TileID) (m manifest, found bool, err error) {
	projection, names := headProjection()
	out, err := st.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: aws.String(st.table), Key: key(tile, manifestPart), ConsistentRead: aws.Bool(true),
		ProjectionExpression: projection, ExpressionAttributeNames: names,
	})
	if err != nil || out.Item == nil {
		return manifest{}, false, err
	}
	m, err = parseManifest(tile, out.Item)
	return m, err == nil, err
}

// List implements checkpoint.Store. It scans the table, and is billed for all of it.
func (st *store) List(ctx context.Context) iter.Seq2[checkpoint.Head, error] {
	return func(yield func(checkpoint.Head, error) bool) {
		projection, names := headProjection()
		names["#part"] = "part"
		pages := dynamodb.NewScanPaginator(st.client, &dynamodb.ScanInput{
			TableName: aws.String(st.table), ConsistentRead: aws.Bool(true),
			FilterExpression:     aws.String("#part = :manifest"),
			ProjectionExpression: projection, ExpressionAttributeNames: names,
			ExpressionAttributeValues: map[string]types.AttributeValue{":manifest": text(manifestPart)},
		})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				yield(checkpoint.Head{}, failed(ctx, "checkpoint list", 0, fence.ErrNotApplied, err))
				return
			}
			for _, item := range page.Items {
				tile, err := tileOf(item)
				var m manifest
				if err == nil {
					m, err = parseManifest(tile, item)
				}
				if !yield(m.Head, err) || err != nil {
					return
				}
			}
		}
	}
}

// EnsureTable creates the table, billed per request, if it does not exist, and waits until it can be
// used. It is meant for development and tests: a production table wants backups, encryption and
// capacity of your choosing. It does not change a table that exists. A server that does not answer is a
// *fence.StoreError.
func (st *Store) EnsureTable(ctx context.Context) error {
	err := dynamotx.CreateTable(ctx, st.own.client, &dynamodb.CreateTableInput{TableName: aws.String(st.own.table)},
		[2]string{"tile", "part"})
	return err
}

// failed classifies an error of the SDK; the cause of a cancelled context says more than the SDK does.
func failed(ctx context.Context, op string, tile fence.TileID, outcome, err error) error {
	if ctx.Err() != nil {
		if cause := context.Cause(ctx); !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	if dynamotx.Throttled(err) {
		err = fmt.Errorf("%w: %w", checkpoint.ErrThrottled, err)
	}
	return &fence.StoreError{Op: op, Tile: tile, Outcome: outcome, Err: err}
}
