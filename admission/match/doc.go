// Package match is matchmaking: from "find a match" to a seat on a tile that serves. Players come in through
// a Lobby, workers make matches under a lease, an Allocator gives them seats, and supervisors return what a dead
// worker held. The parts are types that a game composes:
//
//	queue := match.Queue{Name: "ranked-eu", Max: 2} // one against one, strategy Window
//	seats, err := match.NewSeatAllocator(backend, "eu", 0)
//	lobby, err := match.NewLobby(backend, queue)
//	worker, err := match.NewWorker(backend, seats, []match.Queue{queue}, nil)
//	supervisor, err := match.NewSupervisor(backend, seats, []match.Queue{queue}, nil)
//
//	go worker.Run(ctx)
//	go supervisor.Run(ctx)
//	status, err := lobby.Enqueue(ctx, "ranked-eu", match.Ticket{ID: id, Rating: 1500, Players: players})
//	err = lobby.Watch(ctx, "ranked-eu", id, show) // until it is seated, cancelled or timed out
//
// The back end is memmatch (in memory) or redismatch (Redis 7 Cluster). Owners of tiles announce their seats with
// Seats.Offer, and take a player in with Seats.Take.
//
// # States of a ticket
//
//	Enqueue -> Waiting -Claim-> Claimed -Record-> Matched -Publish-> Seated -Take-> the player is in the battle
//	             ^                 |                 |                  |
//	             +---- Release ----+                 |                  |
//	             +---- Reclaim ----+                 |                  |
//	             +---- Dissolve (no free seat) ------+                  |
//	             +---- Requeue (seat not taken in time) ----------------+
//
//	Waiting -Claim or Reclaim, after Queue.MaxWait-> TimedOut    any but TimedOut -Cancel-> Cancelled
//	Seated -Requeue, of the third seat that was not taken-> TimedOut
//
// Dissolve, Requeue and Reclaim give a ticket the place in its queue that it had; Release leaves its waiting
// time as it is, and lets others be looked at first.
//
// # What it promises
//
//   - A ticket is in at most one match. Each claim has an epoch from the store, and the match is recorded in the step
//     in which its tickets leave the claim, so a worker that was paused past its lease records nothing.
//   - A ticket is never lost. It is in exactly one state; Depth counts them, and Created is their sum.
//   - A match is not half finished for ever: what was recorded and not published is finished or dissolved by a
//     supervisor. Seats are keyed by the match's ID, so that a lost answer is asked for again and gets the same seats.
//   - A tile never has more seats held or taken than it offers, and only tiles whose offer lasts get matches.
//   - No ticket starves: a claim takes those that have waited longest unseen and those that were looked at
//     longest ago, in turn, each with its neighbours by rating; and what a strategy accepts grows with time.
//   - Every wait ends: in a match, in a cancellation, or after Queue.MaxWait in TimedOut. The time that a ticket had a
//     seat does not count, and it may leave MaxLapses seats empty.
//   - A player has one open ticket in a queue, alone or in a party, whatever process it came through; another one is
//     refused with an *OpenError. No lineup has a player twice, whatever a Strategy returns.
//   - A queue has Queue.Room for open tickets, of which each Ticket.Source has a share that shrinks as the queue fills;
//     what comes back from a match counts all the time. A ticket has a few followers.
//   - A supervisor takes nothing from a worker whose lease lasts.
//
// # What it does not
//
//   - Tickets of different queues, and of different shards of a queue, do not meet; a player may have one in each
//     queue.
//   - While Queue.Shards is raised from 1, a player who waits already may get a second ticket, in another shard. So may
//     one whose lobby stalls for more than 10 s between two calls of the store, and dies before it looks again.
//   - A player that has taken a seat may ask for another match. A game that does not want that looks first.
//   - A ticket that is cancelled after it was matched leaves its place in the match empty; the battle may ask for
//     another player (Ticket.Backfill).
//   - Notices (Store.Arrivals, Store.Changes) may be lost. Workers and watchers also ask at intervals.
//
// # Failures
//
//	what fails                                  what happens                                       after
//	worker dies with a claim                    its tickets wait again                             lease + period
//	worker dies with a recorded match           a supervisor finishes the match                    lease + period
//	worker is paused past its lease             as if it died; its calls then get ErrStale         lease + period
//	supervisor dies                             another does its work                              its period
//	answer of Allocate or Publish is lost       it is asked again, under the same match ID         at once
//	no tile has free seats                      the match is dissolved; Why says so                at once
//	tile dies                                   its offer ends; seats not taken go back            ttl, hold + period
//	player does not come                        the seat goes back, the ticket waits again         hold + period
//	player does not come for the third time     the ticket is TimedOut                             hold + period
//	an allocator fails for a match all the time a supervisor dissolves it                          2 min
//	a Strategy returns what is no lineup        the group is refused and reported (ErrLineup)      at once
//	store is away                               nothing is matched; calls get *fence.StoreError    until it is back
//
// lease is WorkerConfig.Lease, period is SupervisorConfig.Period, hold is NewSeatAllocator's.
package match
