package dynamotx

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/fence"
)

// Item is an item as DynamoDB has it.
type Item = map[string]types.AttributeValue

// Text is an attribute of type S.
func Text[T ~string](s T) types.AttributeValue { return &types.AttributeValueMemberS{Value: string(s)} }

// Number is an attribute of type N.
func Number[T ~int | ~int64 | ~uint64](n T) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: fmt.Sprint(n)}
}

// Binary is an attribute of type B. Nil is written as no bytes; the SDK would write null.
func Binary(b []byte) types.AttributeValue {
	if b == nil {
		b = []byte{}
	}
	return &types.AttributeValueMemberB{Value: b}
}

// Names maps #x to x: DynamoDB reserves hundreds of words, and may reserve more.
func Names(attributes ...string) map[string]string {
	m := make(map[string]string, len(attributes))
	for _, a := range attributes {
		m["#"+a] = a
	}
	return m
}

// Reader reads the attributes of an item. What is missing, or not as it was written, is zero, and Err names the first
// of these attributes.
type Reader struct {
	Item Item
	Err  error
}

// Fail notes that an attribute is missing or unreadable.
func (r *Reader) Fail(name string) {
	if r.Err == nil {
		r.Err = fmt.Errorf("attribute %q is missing or unreadable", name)
	}
}

// Text reads an attribute of type S.
func (r *Reader) Text(name string) string {
	if s, ok := r.Item[name].(*types.AttributeValueMemberS); ok {
		return s.Value
	}
	r.Fail(name)
	return ""
}

// Number reads an attribute of type N, a whole number from 0 to most.
func (r *Reader) Number(name string, most uint64) uint64 {
	if n, ok := r.Item[name].(*types.AttributeValueMemberN); ok {
		if v, err := strconv.ParseUint(n.Value, 10, 64); err == nil && v <= most {
			return v
		}
	}
	r.Fail(name)
	return 0
}

// Binary reads an attribute of type B.
func (r *Reader) Binary(name string) []byte {
	if b, ok := r.Item[name].(*types.AttributeValueMemberB); ok {
		return b.Value
	}
	r.Fail(name)
	return nil
}

// tableTimeout is how long a table may take until it can be used.
const tableTimeout = 5 * time.Minute

// CreateTable makes a table, billed per request, and waits until it can be used. One of that name that exists is left
// as it is. Its error is a *fence.StoreError if the service cannot answer now.
func CreateTable(ctx context.Context, client *dynamodb.Client, in *dynamodb.CreateTableInput, keys [2]string) error {
	in.BillingMode, in.KeySchema = types.BillingModePayPerRequest, KeySchema(keys)
	for _, k := range keys {
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: aws.String(k), AttributeType: types.ScalarAttributeTypeS})
	}
	_, err := client.CreateTable(ctx, in)
	if _, exists := errors.AsType[*types.ResourceInUseException](err); err == nil || exists {
		waiter := dynamodb.NewTableExistsWaiter(client,
			func(o *dynamodb.TableExistsWaiterOptions) { o.MinDelay = 100 * time.Millisecond })
		err = waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: in.TableName}, tableTimeout)
	}
	return unmade("create", *in.TableName, err)
}

// Expire has items of a table deleted some time after what an attribute of theirs says, in Unix seconds, unless that is
// so already. Its error is a *fence.StoreError if the service cannot answer now.
func Expire(ctx context.Context, client *dynamodb.Client, table, attribute string) error {
	expires := func() (bool, error) {
		is, err := client.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &table})
		if err != nil {
			return false, err
		}
		d := is.TimeToLiveDescription
		on := d != nil && (d.TimeToLiveStatus == types.TimeToLiveStatusEnabled ||
			d.TimeToLiveStatus == types.TimeToLiveStatusEnabling)
		if on && aws.ToString(d.AttributeName) != attribute {
			return false, &fence.SettingError{Node: "DynamoDB table " + table, Setting: "time to live",
				Value:  aws.ToString(d.AttributeName),
				Detail: "items expire by another attribute; set it to " + attribute}
		}
		return on, nil
	}
	on, err := expires()
	if err == nil && !on {
		spec := &types.TimeToLiveSpecification{AttributeName: &attribute, Enabled: aws.Bool(true)}
		_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &table,
			TimeToLiveSpecification: spec})
		if err != nil { // of two processes that ask at once, one is refused
			if on, asked := expires(); asked == nil && on {
				return nil
			}
		}
	}
	return unmade("expiry of", table, err)
}

func unmade(what, table string, err error) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("%s table %q: %w", what, table, err)
	if Passing(err) {
		return &fence.StoreError{Op: "create table", Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return err
}

// KeySchema is the key of a table or an index: the partition's attribute and the sort key.
func KeySchema(keys [2]string) []types.KeySchemaElement {
	return []types.KeySchemaElement{{AttributeName: aws.String(keys[0]), KeyType: types.KeyTypeHash},
		{AttributeName: aws.String(keys[1]), KeyType: types.KeyTypeRange}}
}
