// Package plan takes slow decisions off the tick. A tick that needs one, such as the next plan of a ship that a model
// flies, leaves a request and goes on at its full rate. Workers in other processes take requests, call a slow
// function, and store the result; a later tick takes it up as an intent like any other.
//
//	desk, err := plan.NewDesk(plans, host.Submit, nil)       // beside the tiles' owner
//	cfg.Hooks = desk.Hooks(cfg.Hooks)                        // of the tiles: epochs and ticks
//	asked, err := desk.Ask(plan.Request{Tile: id, Entity: "ship-7", Requester: "ann", Tier: plan.Player, Words: "flee"})
//
//	worker, err := plan.NewWorker(plans, planner, nil)       // in a process of its own
//	biller, err := plan.NewBiller(plans, sink, nil)          // in another one: what the calls cost
//
// A game calls Ask from Rules.Resolve, and implements [Planner] for its workers. The stores are memplan and redisplan.
//
// # A request
//
//	           claimed                result stored              seen by the owner
//	waiting ──────────────▶ running ──────────────────▶ answered ─────────────────▶ gone
//	 ▲  ▲                    │ │ │                        ▲  ▲ │ (or 30 s later)
//	 │  └────────────────────┘ │ └────────────────────────┘  │
//	 │  failed: after a pause; │    nothing to plan for:     │
//	 │  lease over: at once    │    discarded                │
//	 │                         ▼                             │
//	 └─────────────────────── dead ──────────────────────────┘
//	         replayed          after the last attempt; the owner is notified
//
// Requests carry identifiers and the player's words, never state: a planner reads the state when it begins, and returns
// [ErrNoSubject] if there is nothing left to plan for.
//
// # Guarantees
//
//   - A tick never waits: Ask and the hooks touch memory only. A tile costs one round trip a tick, of many ticks
//     ten a second unless players ask, while it has requests outstanding, and none otherwise, beside the tick.
//
//   - An entity has one request in flight, also across take-overs: a new owner's first call answers with all that is
//     outstanding. A player's request takes the place of the entity's background request while that waits; while it
//     runs, the desk keeps the player's and asks again after the answer.
//
//   - A plan is taken up at most once: as an intent under the tile's epoch with the action ID "plan-" and the request's
//     ID, which the tile remembers. Removing an answer compares the request's ID, so that a late removal cannot
//     take a newer answer. Requests that wait at a take-over are adopted by the new owner. What ran under an older
//     epoch is dropped and counted ([DeskStats].Stale): its planner read the state of another owner.
//
//   - Players first: a slot that is free takes a player's request before any other, and a quarter of the slots of a
//     worker (at least one of two or more) takes nothing else. Of eight slots that are filled while both wait, at least
//     one goes to the background.
//
//   - Each tile has its turn: in each tier a worker takes the requests of tiles in turn, also those that failed and
//     return, so that a tile with two thousand requests does not delay another one's. A tile has MaxOutstanding, and a
//     requester MaxOfRequester of them.
//
//   - Nothing stays in progress. A claim has a lease by the store's clock and the worker renews it. A worker that dies
//     or is paused loses its claims with the lease (8 s), a call that neither returns nor reports [Progress] in
//     60 s is cancelled and fails. The result of a lost claim is refused. A failed request is run again after a pause
//     with full jitter, and after 5 attempts it is a dead letter.
//
//   - The usage event of a request is stored in the same step as its result: once, also if the request was run
//     twice. Billing reads events at its own pace; see [Biller] for exactly-once delivery.
//
// # What it does not promise
//
// A slow function may be called more than once for a request; only one result and one usage event are kept. A result
// that no owner takes up within 30 s is lost. What a master had not replicated when it died is lost: requests are
// noticed to be missing and can be asked again, and a result that is lost is computed again. A planner that ignores its
// context keeps its slot until it returns.
//
// # Concurrency
//
// All types are safe for concurrent use. Desk, Worker and Biller each run all their goroutines inside Run.
//
// # Testing
//
// Test a game over memplan, with a PlannerFunc. All back ends pass one conformance suite.
package plan
