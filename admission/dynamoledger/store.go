package dynamoledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config holds the optional settings of a store. Nil and the zero value are valid.
type Config struct {
	// Retention is how long terminal artifacts are kept at least. Zero keeps them for ever; otherwise at
	// least admission.MinRetention. See the package comment.
	Retention time.Duration

	Logger *slog.Logger // nil discards

	attempts int // what tests change; zero means maxAttempts
}

// maxAttempts is how often a request is made before the store gives up, with jittered pauses of up to a second. It
// takes the place of the client's own retries.
const maxAttempts = 10

// store is an admission.Store in a DynamoDB table.
type store struct {
	client *dynamodb.Client
	table  *string
	clock  *clock
	cfg    Config
}

var (
	_ admission.Store   = (*store)(nil)
	_ fence.WorldKeeper = (*store)(nil)
)

// EnterWorld implements fence.WorldKeeper. The table takes the name and the ID of the first world whose ID is known.
func (s *store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return dynamotx.EnterWorld(ctx, s.client, *s.table, [2]string{"pk", "sk"}, w)
}

// New returns a store over a table that exists. It does no I/O. Errors: a *fence.ArgumentError.
func New(client *dynamodb.Client, table string, cfg *Config) (admission.Store, error) {
	c := setting.Of(cfg)
	c.attempts = cmp.Or(c.attempts, maxAttempts)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case client == nil:
		return nil, &fence.ArgumentError{Field: "client", Value: nil, Want: "a DynamoDB client"}
	case table == "":
		return nil, &fence.ArgumentError{Field: "table", Value: table, Want: "the name of a table, see CreateTable"}
	case c.Retention != 0 && c.Retention < admission.MinRetention:
		return nil, &fence.ArgumentError{Field: "Retention", Value: c.Retention,
			Want: fmt.Sprintf("at least %v, or zero for ever", admission.MinRetention)}
	}
	s := &store{table: aws.String(table), cfg: c, clock: &clock{local: steady()}}
	s.client = dynamodb.New(dynamotx.Client(client, c.attempts).Options(), func(o *dynamodb.Options) {
		s.clock.next, o.HTTPClient = o.HTTPClient, s.clock
	})
	return s, nil
}

// errAgain: what was read has changed meanwhile, and nothing was written.
var errAgain = errors.New("the account changed meanwhile")

// call describes an operation for its errors.
type call struct {
	op, id string
	writes bool
}

// persist makes a request, and again while what it read changes meanwhile.
func (s *store) persist(ctx context.Context, c call, request func(context.Context) error) error {
	for attempt := 1; ; attempt++ {
		if ctx.Err() != nil {
			return s.failed(c, fence.ErrNotApplied, context.Cause(ctx))
		}
		err := request(ctx)
		switch {
		case err == nil || isAnswer(err):
			return err
		case !errors.Is(err, errAgain):
			outcome := fence.ErrNotApplied
			if c.writes {
				outcome = dynamotx.Outcome(err)
			}
			if ctx.Err() != nil {
				err = errors.Join(context.Cause(ctx), err)
			}
			return s.failed(c, outcome, err)
		case attempt == s.cfg.attempts:
			return s.failed(c, fence.ErrNotApplied, err)
		}
	}
}

func (s *store) failed(c call, outcome, err error) error {
	s.cfg.Logger.Warn("ledger table failed", "op", c.op, "id", c.id, "outcome", outcome, "error", err)
	return &fence.StoreError{Op: fmt.Sprintf("%s %q", c.op, c.id), Outcome: outcome, Err: err}
}

// isAnswer tells what the ledger has to say from what went wrong.
func isAnswer(err error) bool {
	return slices.ContainsFunc([]error{
		admission.ErrUnknownAction, admission.ErrContested, admission.ErrReused, admission.ErrBalanceLimit,
		fence.ErrCorrupt,
	}, func(known error) bool { return errors.Is(err, known) })
}

const openIndex = "open"

// CreateTable makes a ledger's table, with on-demand capacity, and waits until it can be used, within ctx.
// A table of that name that exists is left as it is. Deletion by `expires` is switched on in either: the process
// that made the table may have ended before that.
func CreateTable(ctx context.Context, client *dynamodb.Client, name string) error {
	if client == nil || name == "" {
		return &fence.ArgumentError{Field: "table", Value: name, Want: "a client and a table name"}
	}
	err := dynamotx.CreateTable(ctx, client, &dynamodb.CreateTableInput{TableName: ptr(name),
		AttributeDefinitions: []types.AttributeDefinition{
			{AttributeName: ptr("open"), AttributeType: types.ScalarAttributeTypeS},
			{AttributeName: ptr("attempted_at"), AttributeType: types.ScalarAttributeTypeN},
		},
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName: ptr(openIndex),
			KeySchema: dynamotx.KeySchema([2]string{"open", "attempted_at"}),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeInclude,
				NonKeyAttributes: []string{"tile"}},
		}},
	}, [2]string{"pk", "sk"})
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err := dynamotx.Expire(ctx, client, name, "expires"); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}
