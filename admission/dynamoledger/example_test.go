package dynamoledger_test

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
)

func Example() {
	ctx := context.Background()
	client := dynamodb.New(dynamodb.Options{Region: "eu-central-1"}) // or NewFromConfig, with credentials
	if err := dynamoledger.CreateTable(ctx, client, "tilefence-ledger"); err != nil {
		panic(err)
	}
	store, err := dynamoledger.New(client, "tilefence-ledger", nil)
	if err != nil {
		panic(err)
	}
	ledger, err := admission.New(store, nil)
	if err != nil {
		panic(err)
	}
	_ = ledger
}
