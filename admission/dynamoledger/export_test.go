package dynamoledger

import (
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
)

// Mistime gives the store's process a clock that is wrong.
func Mistime(s admission.Store, by time.Duration) {
	steady := steady()
	s.(*store).clock.local = func() time.Time { return steady().Add(by) }
}

// DecodeRecord reads an item.
func DecodeRecord(it map[string]types.AttributeValue) admission.Record { return decodeRecord(it) }

// Attempts is the configuration with so many attempts of a request.
func (c Config) Attempts(n int) Config {
	c.attempts = n
	return c
}
