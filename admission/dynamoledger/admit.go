package dynamoledger

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/internal/dynamotx"
	"github.com/tilefence/tilefence/stream"
)

// Admit implements admission.Store.
//
// It takes one transaction if the account can pay, two if it cannot. Should the account become able to
// pay between them, the second one finds out and the first is tried again; so an action is only rejected
// at a moment at which it could not be paid for.
func (s *store) Admit(ctx context.Context, a admission.Artifact) (got admission.Artifact, err error) {
	err = s.persist(ctx, call{op: "admit", id: a.ActionID, writes: true}, func(ctx context.Context) error {
		payer, err := s.spend(ctx, a, &got)
		if err != nil || payer == nil {
			return err
		}
		return s.reject(ctx, a, *payer, &got)
	})
	return got, err
}

// spend puts the open artifact and takes the cost. got is the artifact the action has then. If the account
// cannot pay, it is returned, and got is not set.
func (s *store) spend(ctx context.Context, a admission.Artifact, got *admission.Artifact) (*admission.Account, error) {
	reasons, err := dynamotx.Transact(ctx, s.client, token("spend", a.ActionID, string(a.AdmissionID)),
		types.TransactWriteItem{Put: s.putArtifact(a)},
		types.TransactWriteItem{Update: s.pay(a)},
	)
	switch {
	case err != nil:
		return nil, err
	case reasons == nil:
		*got = a
		return nil, nil // no account refused
	case reasons[0].Refused:
		*got, err = decodeArtifact(reasons[0].Item)
		return nil, err
	}
	account, err := decodeAccount(reasons[1].Item, a.Actor, a.Asset)
	return &account, err
}

// reject puts a rejected artifact, provided that the account still cannot pay for the same reason.
func (s *store) reject(
	ctx context.Context, a admission.Artifact, payer admission.Account, got *admission.Artifact,
) error {
	a.Outcome, a.Resolved = stream.Rejected, a.Admitted
	a.Reason = admission.ReasonCooldown
	if payer.Balance < a.Cost {
		a.Reason = admission.ReasonBalance
	}
	reasons, err := dynamotx.Transact(ctx, s.client, token("reject", a.Reason.String(), a.ActionID,
		string(a.AdmissionID)),
		types.TransactWriteItem{Put: s.putArtifact(a)},
		types.TransactWriteItem{ConditionCheck: s.cannotPay(a)},
	)
	switch {
	case err != nil:
		return err
	case reasons == nil:
		*got = a
		return nil
	case reasons[0].Refused:
		*got, err = decodeArtifact(reasons[0].Item)
		return err
	}
	return errAgain
}

func (s *store) putArtifact(a admission.Artifact) *types.Put {
	return &types.Put{
		TableName:                           s.table,
		Item:                                s.encodeArtifact(a),
		ConditionExpression:                 ptr("attribute_not_exists(#pk)"),
		ExpressionAttributeNames:            dynamotx.Names("pk"),
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
}

// pay takes the cost and starts the cooldown, on the condition that both are possible.
func (s *store) pay(a admission.Artifact) *types.Update {
	u := &types.Update{
		TableName: s.table,
		Key:       accountKey(a.Actor, a.Asset),
		UpdateExpression: ptr("SET #balance = if_not_exists(#balance, :zero) - :cost," +
			" #version = if_not_exists(#version, :zero) + :one"),
		ConditionExpression: ptr("#balance >= :cost AND (attribute_not_exists(#cooldown_until) OR " +
			"#cooldown_until <= :now)"),
		ExpressionAttributeNames: dynamotx.Names("balance", "version", "cooldown_until"),
		ExpressionAttributeValues: item{
			":zero": dynamotx.Number(0), ":one": dynamotx.Number(1), ":cost": dynamotx.Number(a.Cost),
			":now": dynamotx.Number(a.Admitted.UnixMilli()),
		},
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if a.Cost == 0 {
		// A free action needs no account.
		u.ConditionExpression = ptr("attribute_not_exists(#cooldown_until) OR #cooldown_until <= :now")
	}
	if a.Cooldown > 0 {
		*u.UpdateExpression += ", #cooldown_until = :until"
		u.ExpressionAttributeValues[":until"] = dynamotx.Number(a.CooldownUntil().UnixMilli())
	}
	return u
}

// cannotPay is the opposite of pay's condition, narrowed to the artifact's reason.
func (s *store) cannotPay(a admission.Artifact) *types.ConditionCheck {
	c := &types.ConditionCheck{TableName: s.table, Key: accountKey(a.Actor, a.Asset)}
	switch {
	case a.Reason == admission.ReasonBalance:
		c.ConditionExpression = ptr("attribute_not_exists(#balance) OR #balance < :cost")
		c.ExpressionAttributeNames = dynamotx.Names("balance")
		c.ExpressionAttributeValues = item{":cost": dynamotx.Number(a.Cost)}
	case a.Cost == 0:
		c.ConditionExpression = ptr("#cooldown_until > :now")
		c.ExpressionAttributeNames = dynamotx.Names("cooldown_until")
		c.ExpressionAttributeValues = item{":now": dynamotx.Number(a.Admitted.UnixMilli())}
	default:
		c.ConditionExpression = ptr("#balance >= :cost AND #cooldown_until > :now")
		c.ExpressionAttributeNames = dynamotx.Names("balance", "cooldown_until")
		c.ExpressionAttributeValues = item{":cost": dynamotx.Number(a.Cost),
			":now": dynamotx.Number(a.Admitted.UnixMilli())}
	}
	return c
}
