package dynamotx

import (
	"context"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"

	"github.com/tilefence/tilefence/fence"
)

// WorldKey is the value of both key attributes of the item that keeps to which world a table belongs. Tiles, accounts
// and actions have others.
const WorldKey = "world"

// EnterWorld is that of fence.WorldKeeper for a table with the given key attributes: the table takes the name and the
// ID of the first world whose ID is known.
func EnterWorld(
	ctx context.Context, client *dynamodb.Client, table string, keys [2]string, w fence.World,
) (fence.World, error) {
	if err := w.Validate(); err != nil {
		return fence.World{}, err
	}
	found, known, err := world(ctx, client, table, keys)
	if err == nil && !known && !w.ID.IsZero() {
		item := worldKey(keys)
		item["name"], item["id"] = Text(w.Name), Text(w.ID.String())
		_, err = client.PutItem(ctx, &dynamodb.PutItemInput{TableName: &table, Item: item,
			ConditionExpression: aws.String("attribute_not_exists(#k)"), ExpressionAttributeNames: map[string]string{
				"#k": keys[0]}})
		_, lost := errors.AsType[*types.ConditionalCheckFailedException](err)
		switch {
		case err == nil, lost: // recorded, by this process or another
			found, known, err = world(ctx, client, table, keys)
		case denied(err):
			return fence.World{}, nil // a reader leaves it to a writer
		}
	}
	if err == nil && known {
		record := fmt.Sprintf("item %s/%s of %s", WorldKey, WorldKey, table)
		if err = w.Compare("DynamoDB table "+table, record, found); err != nil {
			return fence.World{}, err
		}
		return found, nil
	}
	if err != nil && !errors.Is(err, fence.ErrCorrupt) {
		err = &fence.StoreError{Op: "enter world", Outcome: fence.ErrNotApplied, Err: err}
	}
	return fence.World{}, err
}

func worldKey(keys [2]string) Item {
	return Item{keys[0]: Text(WorldKey), keys[1]: Text(WorldKey)}
}

// world reads the record of a table. known is false if there is none.
func world(ctx context.Context, client *dynamodb.Client, table string, keys [2]string) (
	w fence.World, known bool, err error) {
	out, err := client.GetItem(ctx, &dynamodb.GetItemInput{TableName: &table, Key: worldKey(keys),
		ConsistentRead: aws.Bool(true)})
	if err != nil || out.Item == nil {
		return w, false, err
	}
	r := Reader{Item: out.Item}
	w.Name = r.Text("name")
	if err = r.Err; err == nil {
		w.ID, err = fence.ParseWorldID(r.Text("id"))
	}
	if err == nil {
		err = w.Validate()
	}
	if err != nil {
		return fence.World{}, false, &fence.CorruptError{What: "world of DynamoDB table " + table, Detail: err.Error()}
	}
	return w, true, nil
}

// denied reports whether the user lacks the right.
func denied(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	return ok && api.ErrorCode() == "AccessDeniedException"
}
