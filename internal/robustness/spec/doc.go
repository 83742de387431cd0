// Package spec is a specification of the commit protocol and of what crosses a border (docs/protocol.md) that is
// checked: two small models, and searches, breadth first, of every state that they can reach within a bound. The
// package is its tests.
//
//	go test -v ./internal/robustness/spec    # what make test runs
//	make spec                                # wider bounds, some minutes
//
// # What crosses a border
//
// Two or three tiles exchange entities, and coins within a tile. What the tiles do is the code that owners run, package
// transfer: what may be said, what is presented, what a tick is asked to decide and what it commits, and the state of
// the channels. Around it everything may happen in any order: messages come late, again or never, owners die, with
// what was not confirmed, or with all of a tile's coordination, tiles are collected and wake, rules refuse, leave or
// fail with what comes. In each state each entity is in one place and no coin is lost; and from each, a run without
// faults brings all to rest. A tile whose journal is away, warps (package warp has a model of its own), and the
// directory are not in it. In make test the larger scenes are searched as far as some thousand states go; make spec
// goes on.
//
// # The model of the commit protocol
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
// (Rule), all but the four of secondLines, some order does, and the shortest is printed. This model is not the code:
// that the code follows the rules is what the simulation, the campaign and the mutants in docs/mutants.md are for. It
// has no snapshots, trims, checkpoints, followers, hand-overs or slots, one shard of two nodes, and logs of a few
// entries.
package spec
