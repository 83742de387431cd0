// Package spec is a specification of the commit protocol (docs/protocol.md) that is checked: a small model, and a
// search, breadth first, of every state that it can reach within a bound. The package is its tests.
//
//	go test -v ./internal/robustness/spec    # what make test runs
//	make spec                                # wider bounds, some minutes
//
// # The model
//
// There is one tile; an authority that is restored to rows that it had; a master and a replica that follows when it
// likes, with failovers after which the old master goes on answering whom it can; two processes that claim, replay,
// install, commit, repair and crash, between any two steps of each other; requests whose answer is lost, or that are
// delivered late; a journal; and a watcher that reads either node. A batch is a byte, a chain is the whole list of
// them, so no two are equal by chance. There is no time: that a process is slow, paused or dead is that others go
// first.
//
// # Invariants
//
//   - an epoch has one server, unless all of coordination was lost and the authority restored;
//   - no two copies have different batches of one epoch at one place;
//   - what every copy has confirmed stays in the history of the master;
//   - what a living owner has acknowledged stays in its history;
//   - a watcher's epoch never goes down, and its state is one chain;
//   - what write-through has acknowledged is in the history of the next owner, also if coordination is lost.
//
// # What it proves, and what not
//
// Within the bounds, which the test prints, no order of these steps breaks an invariant. Without any one of the rules
// (Rule), all but the four of secondLines, some order does, and the shortest is printed. The model is not the code:
// that the code follows the rules is what the simulation, the campaign and the mutants in docs/mutants.md are for. It
// has no snapshots, trims, checkpoints, followers, hand-overs or slots, one shard of two nodes, and logs of a few
// entries.
package spec
