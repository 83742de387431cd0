package dynamoledger

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config holds the optional settings of a Store. Nil and the zero value are valid.
type Config struct {
	// MaxAttempts is how often a request is made before the Store gives up, with jittered pauses of up to a second.
	// It takes the place of the client's own retries. Zero means 10.
	MaxAttempts int

	// Retention is how long terminal artifacts are kept at least. Zero keeps them for ever; otherwise at
	// least admission.MinRetention. See the package comment.
	Retention time.Duration

	Logger *slog.Logger // nil discards
}

// Store is an admission.Store in a DynamoDB table. Create one with New.
type Store struct {
	client *dynamodb.Client
	table  *string
	clock  *clock
	cfg    Config
}

var (
	_ admission.Store   = (*Store)(nil)
	_ fence.WorldKeeper = (*Store)(nil)
)

// EnterWorld implements fence.WorldKeeper. The table takes the name and the ID of the first world whose ID is known.
func (s *Store) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	return dynamotx.EnterWorld(ctx, s.client, *s.table, [2]string{"pk", "sk"}, w)
}

// New returns a Store over a table that exists. It does no I/O. Errors: a *fence.ArgumentError.
func New(client *dynamodb.Client, table string, cfg *Config) (*Store, error) {
	c := setting.Of(cfg)
	c.MaxAttempts = cmp.Or(c.MaxAttempts, 10)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	switch {
	case client == nil:
		return nil, &fence.ArgumentError{Field: "client", Value: nil, Want: "a DynamoDB client"}
	case table == "":
		return nil, &fence.ArgumentError{Field: "table", Value: table, Want: "the name of a table, see CreateTable"}
	case c.MaxAttempts < 1:
		return nil, &fence.ArgumentError{Field: "MaxAttempts", Value: c.MaxAttempts, Want: "at least 1, or zero for 10"}
	case c.Retention != 0 && c.Retention < admission.MinRetention:
		return nil, &fence.ArgumentError{Field: "Retention", Value: c.Retention,
			Want: fmt.Sprintf("at least %v, or zero for ever", admission.MinRetention)}
	}
	s := &Store{table: aws.String(table), cfg: c, clock: &clock{local: steady()}}
	s.client = dynamodb.New(dynamotx.Client(client, c.MaxAttempts).Options(), func(o *dynamodb.Options) {
		s.clock.next, o.HTTPClient = o.HTTPClient, s.clock
	})
	return s, nil
}
