package dynamoledger

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

// Lookup implements admission.Store.
func (s *store) Lookup(ctx context.Context, actionID string) (got admission.Artifact, err error) {
	err = s.persist(ctx, call{op: "lookup", id: actionID}, func(ctx context.Context) error {
		got, err = s.readArtifact(ctx, actionID)
		return err
	})
	return got, err
}

func (s *store) readArtifact(ctx context.Context, actionID string) (admission.Artifact, error) {
	out, err := s.client.GetItem(ctx, &dynamodb.GetItemInput{
		TableName: s.table, Key: actionKey(actionID), ConsistentRead: ptr(true),
	})
	if err != nil {
		return admission.Artifact{}, err
	}
	return decodeArtifact(out.Item)
}

// Attempt implements admission.Store.
func (s *store) Attempt(
	ctx context.Context, actionID string, attempt admission.AttemptID, at time.Time,
) (admission.Artifact, error) {
	return s.update(ctx, "attempt", actionID, &dynamodb.UpdateItemInput{
		UpdateExpression: ptr("SET #attempts = #attempts + :one, #attempt_id = :attempt, #attempted_at = :at"),
		ConditionExpression: ptr("attribute_exists(#pk) AND attribute_not_exists(#outcome)" +
			" AND (attribute_not_exists(#attempt_id) OR #attempt_id <> :attempt)"),
		ExpressionAttributeNames: dynamotx.Names("pk", "outcome", "attempts", "attempt_id", "attempted_at"),
		ExpressionAttributeValues: item{":one": dynamotx.Number(1), ":attempt": dynamotx.Text(attempt),
			":at": dynamotx.Number(at.UnixMilli())},
	})
}

// Withdraw implements admission.Store.
func (s *store) Withdraw(ctx context.Context, actionID string, attempt admission.AttemptID) error {
	_, err := s.update(ctx, "withdraw", actionID, &dynamodb.UpdateItemInput{
		UpdateExpression:          ptr("SET #attempts = #attempts - :one REMOVE #attempt_id"),
		ConditionExpression:       ptr("attribute_not_exists(#outcome) AND #attempt_id = :attempt"),
		ExpressionAttributeNames:  dynamotx.Names("outcome", "attempts", "attempt_id"),
		ExpressionAttributeValues: item{":one": dynamotx.Number(1), ":attempt": dynamotx.Text(attempt)},
	})
	return err
}

// Settle implements admission.Store.
func (s *store) Settle(ctx context.Context, c admission.Settlement) (admission.Artifact, error) {
	if c.Refund {
		return s.refund(ctx, c)
	}
	u := &dynamodb.UpdateItemInput{
		UpdateExpression:         ptr("SET #outcome = :outcome, #resolved_at = :at"),
		ConditionExpression:      ptr("attribute_exists(#pk) AND attribute_not_exists(#outcome)"),
		ExpressionAttributeNames: dynamotx.Names("pk", "open", "outcome", "resolved_at"),
		ExpressionAttributeValues: item{":outcome": dynamotx.Text(c.Outcome.String()),
			":at": dynamotx.Number(c.At.UnixMilli())},
	}
	if s.cfg.Retention > 0 {
		*u.UpdateExpression += ", #expires = :expires"
		u.ExpressionAttributeNames["#expires"] = "expires"
		u.ExpressionAttributeValues[":expires"] = s.expires(c.At)
	}
	*u.UpdateExpression += " REMOVE #open"
	return s.update(ctx, "resolve", c.ActionID, u)
}

// update makes one conditional write to an artifact. If the condition fails, the artifact as it is is the
// answer: that is also what a request finds that is made again after its own success.
func (s *store) update(
	ctx context.Context, op, actionID string, u *dynamodb.UpdateItemInput,
) (got admission.Artifact, err error) {
	u.TableName, u.Key = s.table, actionKey(actionID)
	u.ReturnValues = types.ReturnValueAllNew
	u.ReturnValuesOnConditionCheckFailure = types.ReturnValuesOnConditionCheckFailureAllOld
	err = s.persist(ctx, call{op: op, id: actionID, writes: true}, func(ctx context.Context) error {
		out, err := s.client.UpdateItem(ctx, u)
		var refused *types.ConditionalCheckFailedException
		switch {
		case errors.As(err, &refused):
			got, err = decodeArtifact(refused.Item)
		case err == nil:
			got, err = decodeArtifact(out.Attributes)
		}
		return err
	})
	return got, err
}

// refund ends the action and gives back what it took, in one transaction.
func (s *store) refund(ctx context.Context, c admission.Settlement) (got admission.Artifact, err error) {
	ownCooldown := true // unless it has passed and a later action has set another
	err = s.persist(ctx, call{op: c.Op(), id: c.ActionID, writes: true}, func(ctx context.Context) error {
		if got, err = s.readArtifact(ctx, c.ActionID); err != nil || !got.Open() {
			return err
		}
		ownCooldown = ownCooldown && got.Cooldown > 0
		account, err := s.giveBack(ctx, c, ownCooldown, &got)
		switch {
		case err != nil || account == nil:
			return err
		case account.Balance > admission.MaxAmount-got.Cost:
			return admission.ErrBalanceLimit
		}
		ownCooldown = !ownCooldown
		return errAgain
	})
	return got, err
}

// giveBack runs one refund. If the account refuses, because it has no room for the cost or its cooldown is not the
// action's own, it is returned.
func (s *store) giveBack(
	ctx context.Context, c admission.Settlement, ownCooldown bool, a *admission.Artifact,
) (*admission.Account, error) {
	reasons, err := dynamotx.Transact(ctx, s.client,
		token(c.Op(), c.ActionID, string(c.Sole), c.Outcome.String(), strconv.FormatInt(c.At.UnixMilli(), 10),
			strconv.FormatBool(ownCooldown)),
		types.TransactWriteItem{Update: s.endRefunded(c)},
		types.TransactWriteItem{Update: s.refill(*a, ownCooldown)},
	)
	switch {
	case err != nil:
		return nil, err
	case reasons == nil:
		a.Outcome, a.Resolved, a.Refunded = c.Outcome, c.At, true
		return nil, nil // no account refused
	case reasons[0].Refused:
		if *a, err = decodeArtifact(reasons[0].Item); err == nil && a.Open() {
			err = admission.ErrContested
		}
		return nil, err
	}
	account, err := decodeAccount(reasons[1].Item, a.Actor, a.Asset)
	return &account, err
}

func (s *store) endRefunded(c admission.Settlement) *types.Update {
	u := &types.Update{
		TableName:                s.table,
		Key:                      actionKey(c.ActionID),
		UpdateExpression:         ptr("SET #outcome = :outcome, #resolved_at = :at, #refunded = :true"),
		ConditionExpression:      ptr("attribute_exists(#pk) AND attribute_not_exists(#outcome)"),
		ExpressionAttributeNames: dynamotx.Names("pk", "open", "outcome", "resolved_at", "refunded"),
		ExpressionAttributeValues: item{":outcome": dynamotx.Text(c.Outcome.String()),
			":at": dynamotx.Number(c.At.UnixMilli()), ":true": flag(true)},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if c.Sole != "" {
		*u.ConditionExpression += " AND #attempts = :one AND #attempt_id = :sole"
		u.ExpressionAttributeNames["#attempts"], u.ExpressionAttributeNames["#attempt_id"] = "attempts", "attempt_id"
		u.ExpressionAttributeValues[":one"] = dynamotx.Number(1)
		u.ExpressionAttributeValues[":sole"] = dynamotx.Text(c.Sole)
	}
	if s.cfg.Retention > 0 {
		*u.UpdateExpression += ", #expires = :expires"
		u.ExpressionAttributeNames["#expires"] = "expires"
		u.ExpressionAttributeValues[":expires"] = s.expires(c.At)
	}
	*u.UpdateExpression += " REMOVE #open"
	return u
}

func (s *store) refill(a admission.Artifact, ownCooldown bool) *types.Update {
	u := &types.Update{
		TableName:                s.table,
		Key:                      accountKey(a.Actor, a.Asset),
		UpdateExpression:         ptr("ADD #balance :cost, #version :one"),
		ExpressionAttributeNames: dynamotx.Names("balance", "version"),
		ExpressionAttributeValues: item{":cost": dynamotx.Number(a.Cost), ":one": dynamotx.Number(1),
			":room": dynamotx.Number(admission.MaxAmount - a.Cost)},
		ConditionExpression:                 ptr("#balance <= :room"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if ownCooldown {
		*u.UpdateExpression += " REMOVE #cooldown_until"
		*u.ConditionExpression += " AND #cooldown_until = :own"
		u.ExpressionAttributeNames["#cooldown_until"] = "cooldown_until"
		u.ExpressionAttributeValues[":own"] = dynamotx.Number(a.CooldownUntil().UnixMilli())
	}
	return u
}
