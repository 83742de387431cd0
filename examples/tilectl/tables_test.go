package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestTablesAreDescribed: the description has what makes the tables, and needs no server.
func TestTablesAreDescribed(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"-world", "staging", "tables", "describe"}, nil, &out, &errs)
	require.Equal(t, statusOK, status, errs.String())
	require.NotContains(t, out.String(), "null")
	var template struct {
		Resources map[string]struct {
			Type, DeletionPolicy string
			Properties           struct {
				TableName, BillingMode  string
				KeySchema               []struct{ AttributeName, KeyType string }
				AttributeDefinitions    []struct{ AttributeName, AttributeType string }
				GlobalSecondaryIndexes  []struct{ IndexName string }
				TimeToLiveSpecification struct {
					AttributeName string
					Enabled       bool
				}
			}
		}
	}
	require.NoError(t, json.Unmarshal(out.Bytes(), &template))
	require.Len(t, template.Resources, 2)
	checkpoints, ledger := template.Resources["Checkpoints"], template.Resources["Ledger"]
	require.Equal(t, "AWS::DynamoDB::Table", ledger.Type)
	require.Equal(t, "Retain", ledger.DeletionPolicy)
	require.Equal(t, "staging-checkpoints", checkpoints.Properties.TableName)
	require.Equal(t, "PAY_PER_REQUEST", checkpoints.Properties.BillingMode)
	require.Equal(t, "HASH", checkpoints.Properties.KeySchema[0].KeyType)
	require.Equal(t, "staging-ledger", ledger.Properties.TableName)
	require.Len(t, ledger.Properties.GlobalSecondaryIndexes, 1)
	require.Len(t, ledger.Properties.AttributeDefinitions, 4)
	require.Equal(t, "expires", ledger.Properties.TimeToLiveSpecification.AttributeName)
	require.True(t, ledger.Properties.TimeToLiveSpecification.Enabled)
}

// TestTablesAreMade: once, and the second time nothing changes.
func TestTablesAreMade(t *testing.T) {
	t.Parallel()
	endpoint, world := stacktest.DynamoDB(t), "w"+strings.ReplaceAll(stacktest.UniqueName(t), "_", "-")[20:]
	for range 2 {
		var out, errs bytes.Buffer
		args := []string{"-dynamodb", endpoint, "-world", world, "tables", "create"}
		status := run(t.Context(), args, nil, &out, &errs)
		require.Equal(t, statusOK, status, errs.String())
		require.Contains(t, out.String(), world+"-checkpoints and "+world+"-ledger")
	}
	made := &tool{options: &options{dynamodb: endpoint}}
	client, err := made.dynamo(t.Context(), "")
	require.NoError(t, err)
	for _, table := range []string{world + "-checkpoints", world + "-ledger"} {
		_, err := client.DeleteTable(t.Context(), &dynamodb.DeleteTableInput{TableName: &table})
		require.NoError(t, err)
	}
}
