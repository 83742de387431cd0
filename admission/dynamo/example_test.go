package dynamo_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamo"
)

// Against a local server; in production the options come from the SDK's own configuration.
func Example() {
	ctx := context.Background()
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://127.0.0.1:8000"),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", "")})
	if err := dynamo.CreateTable(ctx, client, "tilefence-ledger"); err != nil { // development only
		log.Fatal(err)
	}
	store, err := dynamo.New(client, "tilefence-ledger", nil)
	if err != nil {
		log.Fatal(err)
	}
	ledger, err := admission.New(store, nil)
	if err != nil {
		log.Fatal(err)
	}
	artifact, err := ledger.Admit(ctx, admission.Action{ID: admission.NewActionID(), Actor: "ann", Asset: "gold", Cost: 3, Tile: 0x85283083fffffff})
	fmt.Println(artifact.Outcome, err)
}
