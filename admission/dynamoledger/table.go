package dynamoledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/fence"
)

const openIndex = "open"

// CreateTable makes a ledger's table, with on-demand capacity, and waits until it can be used, within ctx.
// A table of that name that exists is left as it is. Deletion by `expires` is switched on.
func CreateTable(ctx context.Context, client *dynamodb.Client, name string) error {
	if client == nil || name == "" {
		return &fence.ArgumentError{Field: "table", Value: name, Want: "a client and a table name"}
	}
	attribute := func(name string, t types.ScalarAttributeType) types.AttributeDefinition {
		return types.AttributeDefinition{AttributeName: ptr(name), AttributeType: t}
	}
	key := func(hash, sort string) []types.KeySchemaElement {
		return []types.KeySchemaElement{
			{AttributeName: ptr(hash), KeyType: types.KeyTypeHash},
			{AttributeName: ptr(sort), KeyType: types.KeyTypeRange},
		}
	}
	_, err := client.CreateTable(ctx, &dynamodb.CreateTableInput{
		TableName:   ptr(name),
		BillingMode: types.BillingModePayPerRequest,
		AttributeDefinitions: []types.AttributeDefinition{
			attribute("pk", types.ScalarAttributeTypeS), attribute("sk", types.ScalarAttributeTypeS),
			attribute("open", types.ScalarAttributeTypeS), attribute("attempted_at", types.ScalarAttributeTypeN),
		},
		KeySchema: key("pk", "sk"),
		GlobalSecondaryIndexes: []types.GlobalSecondaryIndex{{
			IndexName:  ptr(openIndex),
			KeySchema:  key("open", "attempted_at"),
			Projection: &types.Projection{ProjectionType: types.ProjectionTypeKeysOnly},
		}},
	})
	var exists *types.ResourceInUseException
	switch {
	case errors.As(err, &exists):
		return waitFor(ctx, client, name)
	case err != nil:
		return fmt.Errorf("ledger: create table %s: %w", name, err)
	}
	if err := waitFor(ctx, client, name); err != nil {
		return err
	}
	_, err = client.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{
		TableName:               ptr(name),
		TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: ptr("expires"), Enabled: ptr(true)},
	})
	if err != nil {
		return fmt.Errorf("ledger: expiry of table %s: %w", name, err)
	}
	return nil
}

func waitFor(ctx context.Context, client *dynamodb.Client, name string) error {
	waiter := dynamodb.NewTableExistsWaiter(client)
	err := waiter.Wait(ctx, &dynamodb.DescribeTableInput{TableName: ptr(name)}, 5*time.Minute)
	if err != nil {
		return fmt.Errorf("ledger: table %s: %w", name, err)
	}
	return nil
}
