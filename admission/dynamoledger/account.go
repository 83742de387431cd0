package dynamoledger

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

// Credit implements admission.Store.
func (s *store) Credit(ctx context.Context, c admission.Credit) error {
	put := &types.Put{
		TableName: s.table,
		Item: merge(creditKey(c.ID), item{"owner": dynamotx.Text(c.Owner), "asset": dynamotx.Text(c.Asset),
			"amount": dynamotx.Number(c.Amount), "credited_at": dynamotx.Number(c.At.UnixMilli())}),
		ConditionExpression:                 ptr("attribute_not_exists(#pk)"),
		ExpressionAttributeNames:            dynamotx.Names("pk"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	add := &types.Update{
		TableName:                s.table,
		Key:                      accountKey(c.Owner, c.Asset),
		UpdateExpression:         ptr("ADD #balance :amount, #version :one"),
		ConditionExpression:      ptr("attribute_not_exists(#balance) OR #balance <= :room"),
		ExpressionAttributeNames: dynamotx.Names("balance", "version"),
		ExpressionAttributeValues: item{":amount": dynamotx.Number(c.Amount), ":one": dynamotx.Number(1),
			":room": dynamotx.Number(admission.MaxAmount - c.Amount)},
	}
	id := token("credit", c.ID, c.Owner, c.Asset, strconv.FormatUint(uint64(c.Amount), 10),
		strconv.FormatInt(c.At.UnixMilli(), 10))
	return s.persist(ctx, call{op: "credit", id: c.ID, writes: true}, func(ctx context.Context) error {
		reasons, err := dynamotx.Transact(ctx, s.client, id,
			types.TransactWriteItem{Put: put}, types.TransactWriteItem{Update: add})
		switch {
		case err != nil || reasons == nil:
			return err
		case !reasons[0].Refused:
			return admission.ErrBalanceLimit
		}
		d := decode(reasons[0].Item)
		if d.Text("owner") != c.Owner || d.Text("asset") != c.Asset ||
			admission.Amount(d.Number("amount", uint64(admission.MaxAmount))) != c.Amount {
			return &admission.ReusedError{What: "credit", ID: c.ID}
		}
		return d.err()
	})
}

// Balance implements admission.Store.
func (s *store) Balance(ctx context.Context, owner, asset string) (got admission.Account, err error) {
	err = s.persist(ctx, call{op: "balance", id: owner}, func(ctx context.Context) error {
		out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
			TableName: s.table, Key: accountKey(owner, asset), ConsistentRead: ptr(true),
		})
		if err == nil {
			got, err = decodeAccount(out.Item, owner, asset)
		}
		return err
	})
	return got, err
}

// openShards spreads the index of open actions, so that one partition does not take every admission.
const openShards = 16

func openShard(n uint32) string { return fmt.Sprintf("%02d", n%openShards) }

func shardOf(actionID string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(actionID)) // never fails
	return openShard(h.Sum32())
}

// Pending implements admission.Store. The index lags behind the table, usually by milliseconds.
func (s *store) Pending(ctx context.Context, from, before time.Time, limit int) ([]admission.PendingAction, error) {
	var all []admission.PendingAction
	for shard := range uint32(openShards) {
		err := s.persist(ctx, call{op: "pending"}, func(ctx context.Context) error {
			out, err := s.client.Query(ctx, &dynamodb.QueryInput{
				TableName: s.table, IndexName: ptr(openIndex), Limit: ptr(int32(limit)), // at most 1000
				KeyConditionExpression:   ptr("#open = :shard AND #attempted_at BETWEEN :from AND :last"),
				ExpressionAttributeNames: dynamotx.Names("open", "attempted_at"),
				ExpressionAttributeValues: item{":shard": dynamotx.Text(openShard(shard)),
					":from": dynamotx.Number(max(0, from.UnixMilli())),
					":last": dynamotx.Number(max(0, from.UnixMilli(), before.UnixMilli()-1))},
			})
			if err != nil {
				return err
			}
			for _, it := range out.Items {
				d := decode(it)
				p := admission.PendingAction{ActionID: strings.TrimPrefix(d.Text("pk"), actionPrefix),
					Attempted: time.UnixMilli(int64(d.Number("attempted_at", fence.MaxNumber))).UTC()}
				if _, ok := it["tile"]; ok { // an index of keys only, as older tables have, lacks it
					p.Tile, _ = fence.ParseTileID(d.Text("tile"))
				}
				if d.Err != nil {
					return d.err()
				}
				all = append(all, p)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(all, func(a, b admission.PendingAction) int { return a.Attempted.Compare(b.Attempted) })
	all = slices.DeleteFunc(all, func(p admission.PendingAction) bool { return !p.Attempted.Before(before) })
	return all[:min(limit, len(all))], nil
}
