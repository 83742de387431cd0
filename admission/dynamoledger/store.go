package dynamoledger

import (
	"log/slog"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
)

// Config holds the optional settings of a Store. Nil and the zero value are valid.
type Config struct {
	// MaxAttempts is how often a request is made before the Store gives up. Zero means 10.
	MaxAttempts int

	// BackoffBase and BackoffMax shape the pauses: the n-th is a random part of BackoffBase·2^n, at most
	// BackoffMax. Zero means 10 ms and 1 s.
	BackoffBase, BackoffMax time.Duration

	// Retention is how long terminal artifacts are kept at least. Zero keeps them for ever; otherwise at
	// least an hour. See the package comment.
	Retention time.Duration

	// Retried is called before each pause, for metrics. It must not block.
	Retried func(RetryInfo)

	Logger *slog.Logger // nil discards
}

// RetryInfo describes a request that will be made again.
type RetryInfo struct {
	Op      string
	Attempt int // that failed, from 1
	Pause   time.Duration
	Err     error
}

// Store is an admission.Store in a DynamoDB table. Create one with New.
type Store struct {
	client *dynamodb.Client
	table  *string
	cfg    Config
}

var _ admission.Store = (*Store)(nil)

// New returns a Store over a table that exists. It does no I/O. Errors: a *fence.ArgumentError.
func New(client *dynamodb.Client, table string, cfg *Config) (*Store, error) {
	var c Config
	if cfg != nil {
		c = *cfg
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = 10
	}
	if c.BackoffBase == 0 {
		c.BackoffBase = 10 * time.Millisecond
	}
	if c.BackoffMax == 0 {
		c.BackoffMax = time.Second
	}
	if c.Retried == nil {
		c.Retried = func(RetryInfo) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	switch {
	case client == nil:
		return nil, &fence.ArgumentError{Field: "client", Value: nil, Want: "a DynamoDB client"}
	case table == "":
		return nil, &fence.ArgumentError{Field: "table", Value: table, Want: "the name of a table, see CreateTable"}
	case c.MaxAttempts < 1:
		return nil, &fence.ArgumentError{Field: "MaxAttempts", Value: c.MaxAttempts, Want: "at least 1, or zero for 10"}
	case c.BackoffBase < 0 || c.BackoffMax < c.BackoffBase:
		return nil, &fence.ArgumentError{Field: "BackoffMax", Value: c.BackoffMax,
			Want: "at least BackoffBase, neither negative"}
	case c.Retention != 0 && c.Retention < time.Hour:
		return nil, &fence.ArgumentError{Field: "Retention", Value: c.Retention,
			Want: "at least an hour, or zero for ever"}
	}
	return &Store{client: client, table: aws.String(table), cfg: c}, nil
}
