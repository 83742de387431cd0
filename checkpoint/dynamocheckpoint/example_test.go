package dynamocheckpoint_test

import (
	"context"
	"fmt"
	"log"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/checkpoint/dynamocheckpoint"
)

// Against a local server; in production the options come from the SDK's own configuration.
func Example() {
	ctx := context.Background()
	client := dynamodb.New(dynamodb.Options{Region: "us-east-1", BaseEndpoint: aws.String("http://127.0.0.1:8000"),
		Credentials: credentials.NewStaticCredentialsProvider("local", "local", "")})
	store, err := dynamocheckpoint.New(client, "tilefence-checkpoints", nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := store.EnsureTable(ctx); err != nil { // development only
		log.Fatal(err)
	}
	s, found, err := checkpoint.Restore(ctx, store, 0x85283083fffffff)
	fmt.Println(s.Position, found, err)
}
