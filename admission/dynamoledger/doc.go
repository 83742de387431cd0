// Package dynamoledger keeps the admission ledger in a DynamoDB table.
//
//	client := dynamodb.NewFromConfig(cfg)
//	store, err := dynamoledger.New(client, "tilefence-ledger", nil)
//	if err != nil {
//		return err
//	}
//	ledger, err := admission.New(store, nil)
//
// # Table
//
// One table holds everything; CreateTable makes it for tests and small deployments, and is the reference for
// the tools that make it elsewhere. Partition key `pk` and sort key `sk`, both strings:
//
//	pk                 sk       item
//	account/<owner>    <asset>  balance, version, cooldown_until
//	action/<ID>        action   an artifact, see below
//	credit/<ID>         credit    owner, asset, amount, credited_at
//
// An artifact has the attributes admission_id, fingerprint (binary), actor, asset, cost, cooldown, tile
// (hexadecimal), body (binary), attempts, attempt_id, admitted_at, attempted_at; once terminal outcome,
// resolved_at and, where they apply, reason, refunded and expires; and open while it is open. Times and
// durations are milliseconds, but expires is in seconds, as DynamoDB wants it.
//
// The sparse global secondary index `open` (partition key open, a string; sort key attempted_at, a number;
// projected: tile) holds open actions for Pending. They are spread over 16 partitions. The index costs one small
// write when an action is admitted and one when it ends.
//
// # Guarantees
//
// An admission is one TransactWriteItems: the artifact is put if the action has none, and the account pays
// if it can. A rejection is another one: the artifact is put if the action has none and the account still
// cannot pay. Settlements are single conditional writes, or a transaction where something is given back. So
// everything package admission promises holds, for as long as artifacts are kept.
//
// Config.Retention lets DynamoDB delete terminal artifacts after that time. It is garbage collection and
// nothing else: an artifact that is still there is valid, whatever its expires says. An action ID that comes
// back after its artifact is gone is a new action, so Retention is admission.MinRetention at least, and must be far
// longer than any client retries. Credits and open actions are never deleted.
//
// Use the table in one Region. A global table replicates later, and two Regions would each spend the same
// card.
//
// # Failures
//
// Every reason of a cancelled transaction is looked at. Only a condition of ours that failed is an answer;
// conflicts and throttling are retried with jittered backoff within the context, ten times at most,
// and so is a request whose answer was lost, under the same client request token, which is derived from the
// action and the call's admission ID. What is still unclear after that is fence.ErrUnknownOutcome. The Store
// configures the SDK's retries itself, in place of the client's.
//
// # Concurrency
//
// A Store is safe for concurrent use, and any number of them may share a table. Two spends of one account
// at the same instant conflict, and one is retried: an account that many actors share becomes a queue.
package dynamoledger
