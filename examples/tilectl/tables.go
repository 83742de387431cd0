package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
)

// makeTables makes the tables of checkpoints and ledger through a client, as the servers do.
func (t *tool) makeTables(ctx context.Context, client *dynamodb.Client) (made []string, err error) {
	store, err := dynamocheckpoint.New(client, t.options.checkpoints, nil)
	if err == nil {
		err = store.EnsureTable(ctx)
	}
	made = append(made, t.options.checkpoints)
	if err == nil && !strings.HasPrefix(t.options.ledger, ledgerFile) {
		err = dynamoledger.CreateTable(ctx, client, t.options.ledger)
		made = append(made, t.options.ledger)
	}
	return made, err
}

// createTables makes the tables that do not exist, and waits until they can be used.
func createTables(ctx context.Context, t *tool, _ []string) error {
	client, err := t.dynamo(ctx, "where the tables are to be")
	if err != nil {
		return err
	}
	made, err := t.makeTables(ctx, client)
	if err == nil {
		t.say("tables %s are there\n", strings.Join(made, " and "))
	}
	return err
}

// describeTables prints the tables as a template for CloudFormation, and asks no server. It has what makeTables would
// send, and keeps a table, with backups, when its stack goes.
func describeTables(ctx context.Context, t *tool, _ []string) error {
	recorded := &recordedTables{ttl: map[string]*types.TimeToLiveSpecification{}}
	client := dynamodb.New(dynamodb.Options{Region: "none"}, dynamodb.WithAPIOptions(recorded.instead))
	if _, err := t.makeTables(ctx, client); err != nil {
		return err
	}
	resources := map[string]any{}
	for i, in := range recorded.tables {
		name := []string{"Checkpoints", "Ledger"}[i]
		properties := map[string]any{"TableName": in.TableName, "BillingMode": in.BillingMode,
			"AttributeDefinitions": in.AttributeDefinitions, "KeySchema": in.KeySchema,
			"GlobalSecondaryIndexes":           in.GlobalSecondaryIndexes,
			"TimeToLiveSpecification":          recorded.ttl[*in.TableName],
			"PointInTimeRecoverySpecification": map[string]bool{"PointInTimeRecoveryEnabled": true}}
		resources[name] = map[string]any{"Type": "AWS::DynamoDB::Table", "DeletionPolicy": "Retain",
			"UpdateReplacePolicy": "Retain", "Properties": properties}
	}
	text, err := json.Marshal(map[string]any{"AWSTemplateFormatVersion": "2010-09-09", "Resources": resources})
	var template any
	if err == nil {
		err = json.Unmarshal(text, &template)
	}
	if err == nil {
		text, err = json.MarshalIndent(set(template), "", "  ")
	}
	if err == nil {
		_, err = fmt.Fprintf(t.raw, "%s\n", text)
	}
	return err
}

// set is a value of JSON without the fields that are null: the SDK's types have all that a table may have.
func set(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for name, field := range v {
			if field == nil {
				delete(v, name)
			} else {
				v[name] = set(field)
			}
		}
	case []any:
		for i := range v {
			v[i] = set(v[i])
		}
	}
	return v
}

// recordedTables answers the requests that make tables, and remembers them.
type recordedTables struct {
	tables []*dynamodb.CreateTableInput
	ttl    map[string]*types.TimeToLiveSpecification
}

func (r *recordedTables) instead(stack *middleware.Stack) error {
	return stack.Initialize.Add(middleware.InitializeMiddlewareFunc("tilectlRecord",
		func(_ context.Context, in middleware.InitializeInput, _ middleware.InitializeHandler) (
			out middleware.InitializeOutput, _ middleware.Metadata, err error) {
			out.Result, err = r.answer(in.Parameters)
			return out, middleware.Metadata{}, err
		}), middleware.Before)
}

func (r *recordedTables) answer(input any) (any, error) {
	switch in := input.(type) {
	case *dynamodb.CreateTableInput:
		r.tables = append(r.tables, in)
		return &dynamodb.CreateTableOutput{}, nil
	case *dynamodb.DescribeTableInput:
		return &dynamodb.DescribeTableOutput{Table: &types.TableDescription{TableStatus: types.TableStatusActive}}, nil
	case *dynamodb.DescribeTimeToLiveInput:
		return &dynamodb.DescribeTimeToLiveOutput{}, nil
	case *dynamodb.UpdateTimeToLiveInput:
		r.ttl[*in.TableName] = in.TimeToLiveSpecification
		return &dynamodb.UpdateTimeToLiveOutput{}, nil
	}
	return nil, fmt.Errorf("making tables has a request that is not known here: %T", input)
}
