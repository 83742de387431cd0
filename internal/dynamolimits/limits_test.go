package dynamolimits_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/dynamolimits"
)

type item = map[string]types.AttributeValue

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }

func of(key string, bytes int) item {
	return item{"tile": text(key), "part": text("p"), "blob": &types.AttributeValueMemberB{Value: make([]byte, bytes)}}
}

func put(i item) *dynamodb.PutItemInput { return &dynamodb.PutItemInput{Item: i} }

// transaction puts so many items of so many bytes, under a token.
func transaction(n, bytes int, token string) *dynamodb.TransactWriteItemsInput {
	in := &dynamodb.TransactWriteItemsInput{ClientRequestToken: aws.String(token)}
	for i := range n {
		in.TransactItems = append(in.TransactItems, types.TransactWriteItem{Put: &types.Put{
			TableName: aws.String("t"), Item: of(fmt.Sprint(i), bytes)}})
	}
	return in
}

func update(condition string, names map[string]string, values item) *dynamodb.UpdateItemInput {
	return &dynamodb.UpdateItemInput{Key: item{"tile": text("1"), "part": text("p")},
		ConditionExpression: aws.String(condition), ExpressionAttributeNames: names, ExpressionAttributeValues: values}
}

// TestWhatTheServiceRefuses: each limit, at it and past it.
func TestWhatTheServiceRefuses(t *testing.T) {
	t.Parallel()
	twice := transaction(2, 1, "x")
	twice.TransactItems[1].Put.Item = of("0", 2)
	batch := func(n int) *dynamodb.BatchWriteItemInput {
		in := &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{}}
		for i := range n {
			in.RequestItems["t"] = append(in.RequestItems["t"], types.WriteRequest{
				PutRequest: &types.PutRequest{Item: of(fmt.Sprint(i), 1)}})
		}
		return in
	}
	get := func(n int) *dynamodb.BatchGetItemInput {
		var keys []item
		for i := range n {
			keys = append(keys, item{"tile": text(fmt.Sprint(i)), "part": text("p")})
		}
		return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{"t": {Keys: keys}}}
	}
	a := map[string]string{"#a": "a"}
	one := item{":a": text("x")}
	long := func(more int) any { return update("#a = :a"+strings.Repeat(" ", 4089+more), a, one) }
	ored := func(more int) any { return update("#a = :a"+strings.Repeat(" or #a=:a", 149+more), a, one) }
	named := func(more int) any {
		return update("#a = :a", map[string]string{"#a": strings.Repeat("n", 255+more)}, one)
	}
	valued := func(more int) any {
		return update("#a = :a", a, item{":a": text(strings.Repeat("x", 2<<20-5+more))})
	}
	noSet := of("1", 1)
	noSet["s"] = &types.AttributeValueMemberSS{}
	number := func(digits int) item {
		i := of("1", 1)
		i["n"] = &types.AttributeValueMemberN{Value: strings.Repeat("1", digits)}
		return i
	}
	const names = 4 + 4 + 4 + 1 + 1 // of the attributes, and what the key's have
	for what, c := range map[string]struct{ within, past any }{
		"item":          {put(of("1", 400<<10-names)), put(of("1", 400<<10-names+1))},
		"partition key": {put(of(strings.Repeat("k", 2048), 1)), put(of(strings.Repeat("k", 2049), 1))},
		"empty key":     {put(of("1", 1)), put(of("", 1))},
		"number":        {put(number(38)), put(number(39))},
		"empty set":     {put(of("1", 1)), put(noSet)},
		"actions":       {transaction(100, 1, "x"), transaction(101, 1, "x")},
		"transaction":   {transaction(10, 380<<10, "x"), transaction(11, 380<<10, "x")},
		"token":         {transaction(1, 1, strings.Repeat("x", 36)), transaction(1, 1, strings.Repeat("x", 37))},
		"empty token":   {transaction(1, 1, "x"), transaction(1, 1, "")},
		"item twice":    {transaction(2, 1, "x"), twice},
		"batch":         {batch(25), batch(26)},
		"keys":          {get(100), get(101)},
		"expression":    {long(0), long(1)},
		"operators":     {ored(0), ored(1)},
		"name":          {named(0), named(1)},
		"values":        {valued(0), valued(1)},
		"not defined":   {update("#a = :a", a, one), update("#a = :a", a, nil)},
		"not used":      {update("#a = :a", a, one), update("attribute_exists(#a)", a, one)},
		"no expression": {update("#a = :a", a, one),
			&dynamodb.UpdateItemInput{Key: item{"tile": text("1")}, ExpressionAttributeNames: a}},
		"key attributes": {update("#a = :a", a, one), &dynamodb.GetItemInput{Key: of("1", 1)}},
	} {
		require.NoError(t, dynamolimits.Exceeded(c.within), what)
		require.Error(t, dynamolimits.Exceeded(c.past), what)
	}
}

// TestARequestIsNotSent: a request past a limit is reported, and fails before it is sent.
func TestARequestIsNotSent(t *testing.T) {
	t.Parallel()
	var found []error
	client := dynamodb.New(dynamodb.Options{Region: "x", BaseEndpoint: aws.String("http://127.0.0.1:1"),
		Credentials: credentials.NewStaticCredentialsProvider("x", "x", ""), Retryer: aws.NopRetryer{}},
		dynamolimits.Check(func(err error) { found = append(found, err) }))
	in := put(of("1", 400<<10))
	in.TableName = aws.String("t")
	_, err := client.PutItem(t.Context(), in)
	require.Len(t, found, 1)
	require.True(t, errors.Is(err, found[0]), "%v", err)
	in.Item = of("1", 1)
	_, err = client.PutItem(t.Context(), in)
	require.ErrorContains(t, err, "connection refused")
	require.Len(t, found, 1)
}
