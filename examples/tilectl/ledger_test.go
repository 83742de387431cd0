package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/dynamoledger"
	"github.com/tilefence/tilefence/admission/sqliteledger"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/memfence"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/memstream"
)

// spend credits a player and leaves three spends open.
func spend(t *testing.T, store admission.Store, id fence.TileID) *admission.AdmissionLedger {
	t.Helper()
	ledger, err := admission.New(store, nil)
	require.NoError(t, err)
	require.NoError(t, ledger.Credit(t.Context(), "ann", "gold", 10, "deck"))
	for _, action := range []string{"applied", "lost", "rejected"} {
		_, err := ledger.Admit(t.Context(), admission.Action{ID: action, Actor: "ann", Asset: "gold", Cost: 1,
			Tile: id})
		require.NoError(t, err)
	}
	return ledger
}

// TestLedgerIsReconciled: what no gateway has finished is found, settled as the tile's stream says, and the rest is
// left to the operator. Every unit stays accounted for.
func TestLedgerIsReconciled(t *testing.T) {
	const id fence.TileID = 0x85283473fffffff
	path := filepath.Join(t.TempDir(), "ledger.db")
	store, err := sqliteledger.Open(t.Context(), path)
	require.NoError(t, err)
	ledger := spend(t, store, id)
	coordination := memfence.New()
	payload, private, err := (&stream.Batch{Events: [][]byte{[]byte("hit")}, Resolutions: []stream.Resolution{
		{ActionID: "applied", Outcome: stream.Applied}, {ActionID: "rejected", Outcome: stream.Rejected}}}).Encode()
	require.NoError(t, err)
	_, err = coordination.Commit(t.Context(), fence.Commit{Tile: id, Epoch: 1, Contact: "a:1", Tick: 1,
		Payload: payload, Private: private, Install: true})
	require.NoError(t, err)

	var out, errs bytes.Buffer
	options := &options{older: time.Nanosecond, yes: true}
	tl := &tool{options: options, out: &printer{&out}, errs: &printer{&errs}, ledger: ledger, store: coordination,
		log: memstream.New(coordination)}
	time.Sleep(2 * time.Millisecond) // the ledger's clock has milliseconds
	require.NoError(t, auditLedger(t.Context(), tl, nil))
	assert.Contains(t, out.String(), "conserved")
	assert.Contains(t, errs.String(), "3 actions were admitted more than")

	out.Reset()
	require.NoError(t, settlePending(t.Context(), tl, nil))
	assert.Contains(t, out.String(), "the tile's stream does not have the action")
	for action, want := range map[string]stream.Outcome{"applied": stream.Applied, "rejected": stream.Rejected,
		"lost": 0} {
		art, err := ledger.Lookup(t.Context(), action)
		require.NoError(t, err)
		assert.Equal(t, want, art.Outcome, action)
		assert.False(t, art.Refunded)
	}
	require.NoError(t, store.Close())

	tilectl := func(line string) (int, string, string) {
		var out, errs bytes.Buffer
		args := append([]string{"-ledger", "sqlite:" + path, "-older", "1ms"}, strings.Fields(line)...)
		status := run(t.Context(), args, strings.NewReader("yes\n"), &out, &errs)
		return status, out.String(), errs.String()
	}
	status, text, failed := tilectl("ledger pending -json")
	require.Equal(t, statusOK, status, failed)
	assert.Contains(t, text, `"action":"lost"`)
	assert.Equal(t, 1, strings.Count(text, "\n"))
	status, _, _ = tilectl("ledger resolve lost won")
	require.Equal(t, statusUsage, status)
	status, text, failed = tilectl("ledger resolve lost fizzled")
	require.Equal(t, statusOK, status, failed)
	assert.Contains(t, failed, "nothing is given back")
	assert.Contains(t, text, "is fizzled")
	status, text, failed = tilectl("ledger resolve lost applied")
	require.Equal(t, statusOK, status, failed)
	assert.Contains(t, text, "is fizzled", "the first outcome stands")
	status, text, failed = tilectl("ledger")
	require.Equal(t, statusOK, status, failed)
	assert.Contains(t, text, "conserved")
	assert.Empty(t, failed)
}

// TestLedgerOnDynamoDB: the same table as the gateways', and damage in it fails the command.
func TestLedgerOnDynamoDB(t *testing.T) {
	endpoint, table := stacktest.DynamoDB(t), stacktest.UniqueName(t)
	client, err := (&tool{options: &options{dynamodb: endpoint}}).dynamo(t.Context(), "the ledger")
	require.NoError(t, err)
	require.NoError(t, dynamoledger.CreateTable(t.Context(), client, table))
	store, err := dynamoledger.New(client, table, nil)
	require.NoError(t, err)
	spend(t, store, 7)
	var out, errs bytes.Buffer
	args := []string{"-dynamodb", endpoint, "-ledger", table, "ledger"}
	require.Equal(t, statusOK, run(t.Context(), args, nil, &out, &errs), errs.String())
	assert.Contains(t, out.String(), "conserved")

	// Three gold are taken from the account, past the ledger.
	_, err = client.UpdateItem(t.Context(), &dynamodb.UpdateItemInput{TableName: &table,
		Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "account/ann"},
			"sk": &types.AttributeValueMemberS{Value: "gold"}},
		UpdateExpression: aws.String("ADD balance :n"), ExpressionAttributeValues: map[string]types.AttributeValue{
			":n": &types.AttributeValueMemberN{Value: "-3"}}})
	require.NoError(t, err)
	out.Reset()
	require.Equal(t, statusFailed, run(t.Context(), args, nil, &out, &errs))
	assert.Contains(t, out.String(), "not conserved")
}

// TestLedgerFileMustExist: a wrong name is an error, not an empty ledger that is sound.
func TestLedgerFileMustExist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "misspelt.db")
	var out, errs bytes.Buffer
	status := run(t.Context(), []string{"-ledger", "sqlite:" + path, "ledger"}, nil, &out, &errs)
	require.Equal(t, statusFailed, status)
	require.Contains(t, errs.String(), "misspelt.db")
	require.NoFileExists(t, path)
}
