package faultinject

import (
	"context"
	"errors"
	"slices"
)

// Kind is one way to break a system, under the names that all who break systems share.
type Kind struct {
	Name  string // unique, as the campaign's -fault takes it
	Title string // unique, as the page and the report of the battle show it
	Means string // what breaks, and what must hold while it is broken
}

// Faults of processes that own tiles.
var (
	OwnerKilled = Kind{"owner-killed", "owner killed",
		"kill -9: no drain and no goodbye. Another host has to notice, and take its tiles over."}
	OwnerPaused = Kind{"owner-paused", "owner paused",
		"A stopped process does not know that time passes. Its late commits are refused."}
	OwnerCutOff = Kind{"owner-cut-off", "owner cut off",
		"It lives, and reaches no store, authority or gossip. Another takes its tiles over; what " +
			"it decided alone is refused."}
	RivalTakeOver = Kind{"rival-take-over", "rival take-over",
		"Another host takes a tile from an owner in good health, which its next commit tells."}
	RepliesLost = Kind{"replies-lost", "replies lost",
		"Batches are committed, and the owner is not told. It presents the same batch until it knows."}
)

// Faults of the coordination store.
var (
	OwnerHashDeleted = Kind{"owner-keys-deleted", "owner hash deleted",
		"The tile seems to have no owner. Its owner asks the authority and installs again."}
	StoreUnreachable = Kind{"store-unreachable", "store unreachable",
		"No process reaches the coordination store. The tiles freeze: better late than forked."}
	CoordinationLost = Kind{"coordination-lost", "coordination lost",
		"All that the coordination store held is gone. The living owners restore their " +
			"tiles from memory; the sequence jumps."}
	MasterPaused = Kind{"master-paused", "master paused",
		"SIGSTOP. Its replica is promoted; what the old master says when it wakes is stale."}
	MasterKilled = Kind{"master-killed", "master killed",
		"kill -9. Its replica is promoted. What it had not passed on, its owners append again."}
	OwnerAndMasterKilled = Kind{"owner-and-master-killed", "owner and master killed",
		"kill -9 of both at once. The ticks that no replica had are lost; each ship is still in one place."}
	ReplicaPaused = Kind{"replica-paused", "replica paused",
		"SIGSTOP. The tiles go on, and keep in memory what it has not confirmed."}
	ReplicaKilled = Kind{"replica-killed", "replica killed",
		"kill -9. The tiles go on; it comes back empty and is filled again."}
	FunctionsFlushed = Kind{"functions-flushed", "functions flushed",
		"FUNCTION FLUSH on every master. The next commit loads the library again."}
)

// Faults of the authority and the durable store.
var (
	AuthorityPaused = Kind{"authority-paused", "PostgreSQL paused",
		"SIGSTOP. No tile gets another owner. The owners there are do not ask it, and go on."}
	AuthorityKilled = Kind{"authority-killed", "PostgreSQL killed",
		"kill -9. No tile gets another owner. The owners there are go on; it forgets no epoch."}
	DurableThrottled = Kind{"durable-throttled", "DynamoDB throttled",
		"Every request is refused for want of capacity. The tiles go on; cards and checkpoints wait."}
)

// Faults of what stands between tiles and players.
var (
	BridgeStopped = Kind{"bridge-stopped", "bridge stopped",
		"Nothing is forwarded to the watchers. The owners do not notice, and nothing is lost."}
	FanoutPaused = Kind{"fanout-node-paused", "fan-out node paused",
		"SIGSTOP. The owners do not notice. Watchers see a gap, and repair it from the store."}
	ViewsKilled = Kind{"views-killed", "views killed",
		"kill -9. Relays read the store themselves. It comes back empty, and is used again."}
	WatchersCutOff = Kind{"watchers-cut-off", "watchers cut off",
		"Every watcher's connection breaks. Each comes back with its position, and gets the rest."}
	PlayersCutOff = Kind{"players-cut-off", "players cut off",
		"Every player's connection breaks. A card that was under way still has one outcome."}
	ViewerStorm = Kind{"viewer-storm", "storm of viewers",
		"300 new clients within a second, each for a whole tile. The players see no less of theirs."}
	MatchWorkerKilled = Kind{"match-worker-killed", "match worker killed",
		"kill -9 with tickets in hand. A supervisor finds them when its lease ends."}
	PlannerKilled = Kind{"planner-killed", "planner killed",
		"kill -9 with plans under way. Another worker has their requests when the lease ends."}
)

// Damage is what a fault has hit, and what repairs it. It is not safe for concurrent use.
type Damage struct {
	Targets []string // in the order in which they were hit, each once
	repairs []func(context.Context) error
}

// Hit notes a target and its repair, before the target is broken: a fault that fails halfway is repaired too. A nil
// repair means that the system repairs it by itself.
func (d *Damage) Hit(target string, repair func(context.Context) error) {
	if !slices.Contains(d.Targets, target) {
		d.Targets = append(d.Targets, target)
	}
	if repair != nil {
		d.repairs = append(d.repairs, repair)
	}
}

// Repair makes all repairs in the order of Hit, also after one that fails, and returns their errors.
func (d *Damage) Repair(ctx context.Context) error {
	var errs []error
	for _, repair := range d.repairs {
		errs = append(errs, repair(ctx))
	}
	return errors.Join(errs...)
}
