// Package dynamolimits compares the requests of tests with the limits that Amazon DynamoDB documents. The server that
// tests use has most of them not, so that a request which the service refuses passes there.
package dynamolimits

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

// The service's limits, in bytes unless their names say what they count.
const (
	maxItem         = 400 << 10
	maxPartitionKey = 2048
	maxSortKey      = 1024
	maxExpression   = 4 << 10
	maxSubstitutes  = 2 << 20 // all names and values of one request's expressions
	maxName         = 255     // an expression attribute name, with its #
	maxOperators    = 300
	maxActions      = 100 // of a transaction
	maxTransaction  = 4 << 20
	maxToken        = 36 // characters
	maxWrites       = 25 // of a batch
	maxBatch        = 16 << 20
	maxReads        = 100 // of a batch
	maxDigits       = 38  // of a number
)

// Check has a client compare each request before it is sent. A request that exceeds a limit is reported and fails. Give
// it to dynamodb.New.
func Check(report func(error)) func(*dynamodb.Options) {
	return dynamodb.WithAPIOptions(func(stack *middleware.Stack) error {
		return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("tilefenceLimits",
			func(ctx context.Context, in middleware.InitializeInput, next middleware.InitializeHandler) (
				middleware.InitializeOutput, middleware.Metadata, error) {
				if err := Exceeded(in.Parameters); err != nil {
					report(err)
					return middleware.InitializeOutput{}, middleware.Metadata{}, err
				}
				return next.HandleInitialize(ctx, in)
			}), middleware.After) // the SDK has made up a token by then
	})
}

type item = map[string]types.AttributeValue

// Exceeded says which limits the input of an operation exceeds; nil for none.
func Exceeded(input any) error {
	c := &checker{op: strings.TrimPrefix(fmt.Sprintf("%T", input), "*dynamodb.")}
	switch in := input.(type) {
	case *dynamodb.PutItemInput:
		c.item(in.Item)
	case *dynamodb.GetItemInput:
		c.key(in.Key)
	case *dynamodb.DeleteItemInput:
		c.key(in.Key)
	case *dynamodb.UpdateItemInput:
		c.key(in.Key)
	case *dynamodb.TransactWriteItemsInput:
		c.transaction(in)
	case *dynamodb.BatchWriteItemInput:
		c.batchWrite(in)
	case *dynamodb.BatchGetItemInput:
		n := 0
		for _, keys := range in.RequestItems {
			n += len(keys.Keys)
			c.distinct("", keys.Keys)
			c.expressions(reflect.ValueOf(keys))
		}
		c.most("keys of a batch", n, maxReads)
	}
	c.expressions(reflect.ValueOf(input).Elem())
	return errors.Join(c.found...)
}

type checker struct {
	op    string
	found []error
}

func (c *checker) refuse(format string, args ...any) {
	c.found = append(c.found, fmt.Errorf("DynamoDB refuses this %s: %s", c.op, fmt.Sprintf(format, args...)))
}

func (c *checker) most(what string, n, most int) {
	if n > most {
		c.refuse("%s: %d, at most %d", what, n, most)
	}
}

func (c *checker) item(i item) {
	c.most("bytes of an item", size(i), maxItem)
	for name, v := range i {
		c.value(name, v)
	}
	c.key(keyOf(i))
}

// keyOf is the key of an item of one of this module's tables.
func keyOf(i item) item {
	for _, names := range [][2]string{{"pk", "sk"}, {"tile", "part"}} {
		if i[names[0]] != nil && i[names[1]] != nil {
			return item{names[0]: i[names[0]], names[1]: i[names[1]]}
		}
	}
	return nil
}

func (c *checker) key(k item) {
	if len(k) == 0 || len(k) > 2 {
		c.refuse("a key has %d attributes", len(k))
	}
	for name, v := range k {
		n, most := sizeOf(v), maxPartitionKey
		if name == "sk" || name == "part" {
			most = maxSortKey
		}
		if n == 0 {
			c.refuse("key attribute %s is empty", name)
		}
		c.most("bytes of key attribute "+name, n, most)
	}
}

// distinct refuses keys of one table that occur twice.
func (c *checker) distinct(table string, keys []item) {
	seen := map[string]bool{}
	for _, k := range keys {
		c.key(k)
		name := table
		for _, attribute := range []string{"pk", "sk", "tile", "part"} {
			if s, ok := k[attribute].(*types.AttributeValueMemberS); ok {
				name += fmt.Sprintf("/%q", s.Value)
			}
		}
		if seen[name] {
			c.refuse("the item %s is there twice", name)
		}
		seen[name] = true
	}
}

func (c *checker) transaction(in *dynamodb.TransactWriteItemsInput) {
	c.most("actions", len(in.TransactItems), maxActions)
	if n := len(aws.ToString(in.ClientRequestToken)); in.ClientRequestToken != nil && (n == 0 || n > maxToken) {
		c.refuse("a token of %d characters, 1 to %d", n, maxToken)
	}
	bytes, keys := 0, map[string][]item{}
	for _, action := range in.TransactItems {
		var table *string
		var key item
		switch {
		case action.Put != nil:
			c.item(action.Put.Item)
			bytes += size(action.Put.Item)
			table, key = action.Put.TableName, keyOf(action.Put.Item)
			c.expressions(reflect.ValueOf(*action.Put))
		case action.Update != nil:
			table, key = action.Update.TableName, action.Update.Key
			bytes += size(action.Update.ExpressionAttributeValues)
			c.expressions(reflect.ValueOf(*action.Update))
		case action.Delete != nil:
			table, key = action.Delete.TableName, action.Delete.Key
			c.expressions(reflect.ValueOf(*action.Delete))
		case action.ConditionCheck != nil:
			table, key = action.ConditionCheck.TableName, action.ConditionCheck.Key
			c.expressions(reflect.ValueOf(*action.ConditionCheck))
		}
		keys[aws.ToString(table)] = append(keys[aws.ToString(table)], key)
	}
	c.most("bytes of a transaction", bytes, maxTransaction)
	for table, all := range keys {
		c.distinct(table, all)
	}
}

func (c *checker) batchWrite(in *dynamodb.BatchWriteItemInput) {
	n, bytes := 0, 0
	for table, requests := range in.RequestItems {
		var keys []item
		for _, r := range requests {
			if r.PutRequest != nil {
				c.item(r.PutRequest.Item)
				bytes += size(r.PutRequest.Item)
				keys = append(keys, keyOf(r.PutRequest.Item))
			} else {
				keys = append(keys, r.DeleteRequest.Key)
			}
		}
		n += len(requests)
		c.distinct(table, keys)
	}
	c.most("writes of a batch", n, maxWrites)
	c.most("bytes of a batch", bytes, maxBatch)
}

var (
	substitute = regexp.MustCompile(`[#:][A-Za-z0-9_]+`)
	operator   = regexp.MustCompile(`(?i)<>|<=|>=|[=<>+]| - |\b(and|or|not|between|in|if_not_exists|list_append|` +
		`attribute_(not_)?exists|attribute_type|begins_with|contains|size)\b`)
)

// expressions checks the expressions of an input, or of a part of one, and what is put into them.
func (c *checker) expressions(in reflect.Value) {
	used := map[string]bool{}
	some := false
	for _, kind := range []string{"Condition", "Update", "Projection", "Filter", "KeyCondition"} {
		f := in.FieldByName(kind + "Expression")
		if !f.IsValid() || f.IsNil() {
			continue
		}
		some = true
		text := f.Elem().String()
		c.most("bytes of the expression "+text, len(text), maxExpression)
		c.most("operators of the expression "+text, len(operator.FindAllString(text, -1)), maxOperators)
		if text == "" {
			c.refuse("%sExpression is empty", kind)
		}
		for _, s := range substitute.FindAllString(text, -1) {
			used[s] = true
		}
	}
	f := in.FieldByName("ExpressionAttributeNames")
	if !f.IsValid() {
		return
	}
	names, _ := f.Interface().(map[string]string)
	values := item{}
	if f := in.FieldByName("ExpressionAttributeValues"); f.IsValid() {
		values, _ = f.Interface().(item)
	}
	bytes := size(values)
	if !some && len(names)+len(values) > 0 {
		c.refuse("names or values without an expression")
	}
	defined := map[string]bool{}
	for name, is := range names {
		defined[name] = true
		bytes += len(name) + len(is)
		c.most("bytes of the name "+name, max(len(name), len(is)), maxName)
	}
	for name, v := range values {
		defined[name] = true
		c.value(name, v)
	}
	c.most("bytes of names and values", bytes, maxSubstitutes)
	for s := range used {
		if !defined[s] {
			c.refuse("%s is not defined", s)
		}
	}
	for s := range defined {
		if !used[s] {
			c.refuse("%s is not used", s)
		}
	}
}

// value checks one value: numbers, and sets, which cannot be empty.
func (c *checker) value(name string, v types.AttributeValue) {
	switch v := v.(type) {
	case *types.AttributeValueMemberN:
		c.most("digits of the number "+name, len(strings.Trim(v.Value, "-.0")), maxDigits)
	case *types.AttributeValueMemberSS:
		c.set(name, len(v.Value))
	case *types.AttributeValueMemberNS:
		c.set(name, len(v.Value))
	case *types.AttributeValueMemberBS:
		c.set(name, len(v.Value))
	case nil:
		c.refuse("%s has no value", name)
	}
}

func (c *checker) set(name string, n int) {
	if n == 0 {
		c.refuse("the set %s is empty", name)
	}
}

// size is what the service counts for an item: names and values.
func size(i item) (n int) {
	for name, v := range i {
		n += len(name) + sizeOf(v)
	}
	return n
}

func sizeOf(v types.AttributeValue) (n int) {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return len(v.Value)/2 + 2
	case *types.AttributeValueMemberSS:
		for _, s := range v.Value {
			n += len(s)
		}
	case *types.AttributeValueMemberL:
		n = 3
		for _, e := range v.Value {
			n += 1 + sizeOf(e)
		}
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + size(v.Value)
	default:
		return 1 // a truth value, or none
	}
	return n
}
