// Package admission is where players' intents enter: the durable ledger for what spends or mints, and the
// gateway for movements and economic actions.
//
//	ledger, err := admission.New(store, nil)             // over admission/dynamoledger or admission/sqliteledger
//	router, err := route.NewRouter(table, coordination, nil)
//	gateway, err := admission.NewGateway(ledger, router, tiles, price, nil)
//
//	outcome, err := gateway.Move(ctx, intent)            // movement: checked, smoothed, sent
//	artifact, err := gateway.Act(ctx, action)            // economic: admitted durably, then sent, then settled
//	go gateway.Run(ctx)                                  // finishes what clients and gateways left behind
//
// Movement needs no record: an applied move is an event in the tile's stream, and moving again is harmless.
// An economic action is spent and recorded in one durable step before any tile sees it, and its record, the
// Artifact, is from then on the only source of its answer.
//
// # Guarantees
//
// For every action ID, across crashes of clients, gateways and tiles and retries at every step:
//
//   - The cost is spent at most once: the spend and the artifact are one atomic write, and it is made only
//     if the action has no artifact.
//   - There is exactly one outcome, and every call returns it, with the same time, for as long as artifacts are kept:
//     MinRetention at least. Gateway.Outcome asks for it without presenting the action. An action that
//     its account could not pay for stays rejected when the balance grows later.
//   - No balance goes below zero, and balances plus what open and resolved actions have spent are what was
//     credited.
//   - A tile applies the action at most once: the tile remembers action IDs, the gateway stops sending an
//     action before the tile forgets it (GatewayConfig.RetryWindow), and what is sent is always the first
//     request, as admitted.
//   - What was spent is given back only with certainty: every process the action was sent
//     to has answered that it will never resolve it, and no other client has ever begun to send it (Abandon); or
//     authority, owner hash and stream show that no tile has decided it or ever will (Reconciler). Outcomes that a
//     tile reports, rejected and fizzled included, give nothing back. A game that wants to
//     compensate for one credits the amount under a credit ID derived from the action ID, which is idempotent too.
//
// What is one step and what is not: the spend and the open artifact are one transaction; so are a rejection and the
// account's being unable to pay, and the refund and the terminal artifact of Abandon. The effect of an action is not in
// the ledger but in its tile, where it is one batch with the outcome that the tile remembers; Resolve copies that
// outcome into the ledger in a transaction of its own. Between the two the action is pending, and the tile gives the
// same outcome again.
//
// The ledger knows what a tile answered. Whether the tile's events survive is the durability that the tile
// was configured with: losing the whole coordination store may undo the last seconds of play, but not
// the spends that belong to them.
//
// # Rates
//
// What is above a rate is delayed until its turn, which smooths bursts, or refused with a *LimitError if it would wait
// longer than 250 ms:
//
//   - the movements of each actor (MoveRate), and those to each tile (TileRate);
//   - tiles whose owner could not be reached, or that have none (TakeoverRate). To look for another owner, or to begin
//     the tile, takes a turn, which the intents of a tile share. So a wave of tiles that lose their owner, or that
//     players enter for the first time, reaches the coordination store and the authority at a rate.
//
// The actions of each actor (ActRate) are refused above their rate and not delayed. Stats count both; a
// LimitError in DoneInfo.Err says of whom.
// Rates are of one gateway: with several, a tile gets the sum.
//
// # Failures
//
// An error from Act says what to do. ErrPending: the action is admitted and its outcome is not known yet; call
// again with the same action, now or later, on any gateway. A *fence.StoreError: the action was not admitted, or that
// is unknown; call again likewise. Any other error: nothing happened, and the error gives the reason.
//
//	crash or lost answer                 the retry
//	before or during Admit               admits, or finds what was admitted
//	after Admit, before the tile         sends it
//	after the tile applied it            sends it again; the tile answers from memory
//	after the outcome was recorded       reads it
//
// A sweep (Gateway.Run, Gateway.Sweep) retries what no client retries.
//
// An attempt may be lost on its way to the tile or back, and no further attempt get an answer within RetryWindow. The
// tile may have applied the action and forgotten it, so it is not sent again: it is pending, with ErrExpired. A sweep
// asks the Reconciler then, which reads what the tile has committed: the outcome is recorded, and what certainly never
// happened is given back. Only an action without such evidence stays open until an operator who has checked calls
// AdmissionLedger.Resolve.
//
// # Trust
//
// Actor is trusted: take it from authentication, as package gatewayws does. Asset, cost and cooldown come from
// the PriceFunc; clients are trusted only with ClientPrices. One action ID names one action for all
// clients, and a second request under it is refused with ErrReused; so IDs must be hard to guess (NewActionID).
// Rules must refuse what costs something in an intent without an ActionID: such an intent came through Move.
//
// # Concurrency
//
// AdmissionLedger and Gateway are safe for concurrent use and keep no state that matters, so any number of
// processes may share a store. Constructors start nothing; Run owns its goroutines.
//
// # Testing
//
// sqliteledger.Open(ctx, sqliteledger.Memory) is a whole ledger in memory, and works inside testing/synctest. A
// fake Forwarder is one method. Stores are tested with admissiontest.Run.
package admission
