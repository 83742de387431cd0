package dynamoledger

import (
	"context"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

const openIndex = "open"

// CreateTable makes a ledger's table, with on-demand capacity, and waits until it can be used, within ctx.
// A table of that name that exists is left as it is. Deletion by `expires` is switched on.
func CreateTable(ctx context.Context, client *dynamodb.Client, name string) error {
	if client == nil || name == "" {
		return &fence.ArgumentError{Field: "table", Value: name, Want: "a client and a table name"}
	}
	created, err := dynamotx.CreateTable(ctx, client, &dynamodb.CreateTableInput{TableName: ptr(name),
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
	if !created {
		return nil
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
