//go:build unix

package main

import (
	"fmt"
	"strings"

	"github.com/tilefence/tilefence/internal/robustness/spec"
)

// mutant takes one rule of the protocol out of one file.
type mutant struct {
	name     string
	rule     string // what it takes out, as docs/protocol.md says it
	file     string
	old, new string // a text that must be in the file exactly once, and what stands in its place
	by       []detector
}

// detector is a command that fails if a promise is broken. Two are independent if neither runs the other's tests.
type detector struct {
	name    string
	servers bool   // needs a coordination cluster
	parts   string // of the servers, if it needs others
	seeded  bool   // built with package seeded
	env     []string
	command []string
}

// seeds has a random play run as many seeds as a trial has time for, which is more than a test takes.
func (d detector) seeds(n int) detector {
	d.env = append(d.env, fmt.Sprint("TILEFENCE_SEEDS=", n))
	return d
}

func tests(name, pkg, run string) detector {
	return detector{name: name, command: []string{"go", "test", "-count=1", "-vet=off", "-run", run, pkg}}
}

func simulated(name, run string) detector {
	d := tests(name, "./internal/robustness/simulation", run)
	d.seeded = true
	return d
}

func allBut(name, pkg, skip string) detector {
	return detector{name: name, command: []string{"go", "test", "-count=1", "-vet=off", "-skip", skip, pkg}}
}

func onServers(name, pkg, run string) detector {
	d := tests(name, pkg, run)
	d.servers = true
	return d
}

func onDynamo(name, pkg, run string) detector {
	d := onServers(name, pkg, run)
	d.parts = "dynamodb"
	return d
}

// campaign injects one kind of fault into real processes, a few runs with fixed seeds.
func campaign(fault, duration string) detector {
	return detector{name: "campaign, " + fault, command: []string{"go", "run",
		"./internal/robustness/cmd/robustness", "-fault", fault, "-replicas", "1", "-duration", duration,
		"-seed", "1"}}
}

// crossings is one run of real processes whose owners are killed, and every copy of what coordination holds is lost,
// while travellers cross between tiles with journals.
var crossings = detector{name: "campaign, without a break", command: []string{"go", "run",
	"./internal/robustness/cmd/robustness", "-fault", "many-owners-killed,coordination-lost", "-unbroken", "40s",
	"-travellers", "300", "-durable", "-replicas", "1", "-seed", "1"}}

func (d *detector) campaign() bool { return strings.HasPrefix(d.name, "campaign") }

// The detectors that many mutants share. The protocol's rules in package tile have three: scenarios written for them,
// random plays against a model of what each class promises, and the simulation, which judges recorded histories.
var (
	scenarios  = allBut("tile scenarios", "./tile", "^TestRecoveryPoints$|^TestWhatIsLost")
	model      = tests("tile random", "./tile", "^TestRecoveryPoints$|^TestWhatIsLost").seeds(60)
	simulation = simulated("simulation",
		"^TestProtocolKeepsItsPromises$|^TestOneCopyAnswersAsSpecified$|^TestRestoredAuthority$")
	watched         = simulated("simulation, watched", "^TestWatchers").seeds(150)
	whole           = simulated("simulation, whole", "^TestPlayersPay").seeds(500)
	travellers      = simulated("simulation, travellers", "^TestTravellers").seeds(100)
	ships           = tests("ships", "./tile", "Ship|Said")
	refusals        = tests("ports that refuse", "./tile", "^TestPortsThat").seeds(10)
	nothing         = tests("nothing confirmed", "./tile", "^TestABorderCloses")
	transferUnits   = tests("transfer units", "./internal/transfer", ".")
	unlike          = tests("unlike tiles", "./tile", "^TestABorderBetweenTwoClassesIsClosed$")
	seam            = tests("model of borders", "./internal/robustness/spec", "InOnePlace|OfABorder")
	lost            = simulated("simulation, all lost", "^TestEveryCopy").seeds(700)
	bridgeTests     = allBut("bridge scenarios", "./bridge", "^TestRandomFaults$")
	bridgeRandom    = tests("bridge random", "./bridge", "^TestRandomFaults$")
	admissionRandom = tests("admission random", "./admission", "^TestRandomFaults$")
	readers         = onServers("readers", "./stream/redisstream", "^TestReaders$")
	logSuite        = onServers("log suite", "./stream/redisstream", "^TestLog$")
	coldRestore     = detector{name: "cold restore", servers: true, parts: "coordination,fanout,postgres,dynamodb",
		command: []string{"go", "test", "-count=1", "-vet=off", "./internal/coldrestore"}}
	owncluster = onServers("own cluster", "./fence/redisfence", "^TestOwnCluster$")
	storeSuite = onServers("store suite", "./fence/redisfence", "^TestStore$")
	contest    = onServers("contest on servers", "./internal/robustness/simulation",
		"^TestMutantsOfTheFunctionsAreCaught$/^mutant_$") // the one that leaves the functions as they are
	journalSuite  = onDynamo("journal suite", "./checkpoint/dynamocheckpoint", "^TestJournalConformance$")
	journalFaults = onDynamo("journal faults", "./checkpoint/dynamocheckpoint", "^TestDelayedAppend|^TestAppend")
	checked       = tests("model checker", "./internal/robustness/spec", ".")
	replicaUnits  = tests("replica units", "./fence/redisfence", "^TestReplicas|^TestMostWanted$|^TestWait")
)

const (
	decide    = "internal/recovery/recovery.go"
	reconcile = "tile/reconcile.go"
	repair    = "tile/repair.go"
	base      = "tile/base.go"
	ownership = "tile/ownership.go"
	cursor    = "bridge/cursor.go"
	channel   = "internal/transfer/channel.go"
	speech    = "internal/transfer/speech.go"
	state     = "internal/transfer/state.go"
	commit    = "fence/redisfence/lua/commit.lua"
)

// mutants are those that an independent review found alive, and those of the holes that were closed since.
var mutants = []mutant{
	{"re-append skips a batch", "what a failover lost is appended again, in order", repair,
		"	for i, c := range lost {\n",
		"	for i, c := range lost {\n		if i == 0 && len(lost) > 1 {\n			continue\n		}\n",
		[]detector{scenarios, model, simulation, campaign("tail-lost", "30s")}},
	{"re-append forgets the last batch", "what a failover lost is appended again, all of it", reconcile,
		"o.reappend(ctx, i.lost)\n", "o.reappend(ctx, i.lost[:len(i.lost)-1])\n",
		[]detector{scenarios, model, simulation, campaign("tail-lost", "30s")}},
	{"stale owner rebases on its own state", "a later owner that the authority has forgotten counts", decide,
		"	case LaterDead:\n		return TakeUp\n", "	case LaterDead:\n		return Rebase\n",
		[]detector{scenarios, model, simulation, checked, campaign("successor-forgotten", "25s")}},
	{"a stale owner takes the tile from a healthy successor", "a later owner that lives keeps its tile", reconcile,
		"	case before.Present() && now.Present() && now != before:\n", "	case before.Present() && now.Epoch == 0:\n",
		[]detector{scenarios, model, simulation}},
	{"install without asking", "an owner without an owner hash asks the authority first", decide,
		"	switch e.Authority {\n",
		"	if e.Event == NoOwner {\n		return InstallAnew\n	}\n	switch e.Authority {\n",
		[]detector{scenarios, model, simulation, campaign("owner-keys-deleted", "15s")}},
	{"a twin is not noticed", "an equal epoch at another contact is a later owner", ownership,
		"return twin || max(", "return twin && false || max(",
		[]detector{scenarios, model, simulation, campaign("twin-wakes", "30s")}},
	{"a twin that has died is not noticed", "an epoch that another owner has written under is a later owner's",
		"tile/acquisition.go", "(a.ownership.outlived(refused) || last.Epoch == a.ownership.grant.Epoch):\n",
		"a.ownership.outlived(refused):\n", []detector{simulation.seeds(1000), lost.seeds(1000)}},
	{"an owner does not look", "an owner outlasts a claim that was not taken up", "tile/recordcheck.go",
		"		l.lookIfDue(ctx)\n", "",
		[]detector{scenarios, model, simulation, campaign("claimant-lost", "15s")}},
	{"a stale owner stands down unasked", "a refusal as stale is settled by the authority", reconcile,
		"	err := o.ownership.ask(ctx, i, seen)\n",
		"	err := o.ownership.ask(ctx, i, seen)\n	if redirects {\n" +
			"		i.Authority, i.superseded = recovery.Superseded, o.ownership.supersededBy(seen)\n	}\n",
		[]detector{scenarios, model, simulation}},
	{"a quiet last tick is not confirmed", "a hand-over builds on nothing that a failover could undo",
		"tile/handover.go", "		case o.confirmed:\n			return nil\n		default:",
		"		case o.pending == nil:\n			return nil\n		default:",
		[]detector{scenarios, model, simulation.seeds(300), campaign("replication-cut,replica-killed", "40s")}},
	{"an install is not confirmed", "nothing is served under an epoch that a failover could undo", "tile/install.go",
		"Install: true, Replicas: fence.AllReplicas}", "Install: true}",
		[]detector{scenarios, model, simulation, campaign("fence-moved-back", "15s")}},
	{"a lost append counts", "write-through acknowledges what the journal has", base,
		"	case err == nil:\n		return nil\n	case errors.Is(err, fence.ErrStale)",
		"	case err == nil, ctx.Err() != nil, errors.Is(err, fence.ErrUnknownOutcome):\n		return nil\n" +
			"	case errors.Is(err, fence.ErrStale)",
		[]detector{scenarios, model, coldRestore}},
	{"the journal is read before it is sealed", "what an earlier owner appends later is refused",
		"tile/internal/durable/durable.go",
		"	if err = s.Journal.Seal(ctx, s.Tile, epoch); err == nil {\n		c, err = s.Read(ctx)\n	}\n	return c, err",
		"	if c, err = s.Read(ctx); err == nil {\n		err = s.Journal.Seal(ctx, s.Tile, epoch)\n	}\n	return c, err",
		[]detector{scenarios, model}},
	{"a refused base is offered for ever", "a durable store with another owner's state is taken up", reconcile,
		"	if errors.Is(err, errStartOver) {\n		i.Event", "	if errors.Is(err, errHandedOver) {\n		i.Event",
		[]detector{scenarios, model}},
	{"an outshone owner goes on", "no owner serves below what watchers were shown", reconcile,
		"	case t == nil || t.Shown <= own:\n", "	case t == nil || t.Shown >= own:\n",
		[]detector{scenarios, tests("cluster scenarios", ".", "."), campaign("outshone", "25s")}},
	{"an owner replaces what an earlier one went on with", "an earlier owner that went on where all was lost counts",
		reconcile, "	} else if o.ownership.goneOn(refused) {\n",
		"	} else if o.ownership.goneOn(refused) && false {\n",
		[]detector{scenarios, lost, campaign("twin-wakes", "200s")}},
	{"an owner knows its history by numbers", "a restored authority grants numbers again",
		"tile/internal/history/history.go", "return !slices.Contains(h.path, at)",
		"return len(h.path) == 0 || at.Epoch == h.Position.Epoch && at.Seq > h.Position.Seq ||\n" +
			"		first.Seq == 1<<62 && !slices.Contains(h.path, at)",
		[]detector{scenarios, tests("history units", "./tile/internal/history", "."), lost}},
	{"a rebase from memory is below the checkpoint", "an owner goes on above every epoch that is durable",
		"tile/restore.go",
		"	case c.At.Epoch >= a.ownership.grant.Epoch:\n		a.ownership.saw(c.At.Epoch)\n" +
			"		return acquired{}, errStartOver\n	}\n	return a.rebase",
		"	}\n	return a.rebase",
		[]detector{scenarios, lost, coldRestore}},
	{"an owner whose hash is gone stays below the checkpoint", "an owner goes on above every epoch that is durable",
		decide, "	case DurableLater:\n		return Rebase\n", "	case DurableLater:\n		return Settle\n",
		[]detector{scenarios, lost.seeds(900)}},
	{"an owner installs itself anew on an answer of before",
		"who installs itself anew asks once more before it answers", "tile/tick.go",
		"	if o.pending.anew {", "	if false {", []detector{scenarios, lost.seeds(900)}},
	{"an undecided owner does not ask again", "a refused owner asks before it presents a rebase",
		"tile/acquisition.go",
		"	return a.ownership.retry(ctx, func() error { return a.ownership.ask(ctx, i, i.seen) })\n",
		"	i.Authority = recovery.Ours\n	return nil\n",
		[]detector{scenarios, simulation.seeds(700), lost}},
	{"a tile that nobody owns needs no replicas", "evidence is what every replica has", "admission/reconcile.go",
		"	case never:\n		return known, nil, nil\n", "	default:\n		return known, nil, nil\n",
		[]detector{allBut("admission", "./admission", "^TestRandomFaults$"), whole}},
	{"an owner abandons its batch that is in the store", "a batch in the store is part of its owner's state",
		repair, "o.pending == nil || o.pending.commit.Refresh() || end != o.pending.commit.Next()",
		"o.pending == nil || end != (fence.Position{})", []detector{scenarios, simulation.seeds(700), whole}},
	{"a rebase that nobody served is made durable", "a checkpoint is of an epoch that was confirmed",
		"checkpoint/attempt.go", "		at.Owner.Tick > s.Tick {", "		s.Seq > 0 {",
		[]detector{tests("checkpointer", "./checkpoint", "."), whole.seeds(1200)}},
	{"a refresh on a master that was replaced is believed", "evidence is what every replica has",
		"admission/reconcile.go",
		"if reason, err = r.replaced(ctx, before.Tile, known.End); reason != nil || err != nil {",
		"if reason != nil {", []detector{allBut("admission", "./admission", "^TestRandomFaults$"), whole.seeds(1800)}},
	{"an owner that appends again is believed", "evidence is what an owner has shown to be all",
		"admission/reconcile.go", "known.End != after.Position:\n		return known, nil, nil",
		"known.End != after.Position:\n		known.whole = true\n		return known, nil, nil",
		[]detector{allBut("admission", "./admission", "^TestRandomFaults$"), whole.seeds(1000)}},
	{"a rebase is tried again over what it was refused for", "an earlier owner that went on where all was lost counts",
		"tile/acquisition.go", "	case event == recovery.ClaimBehind && a.ownership.goneOn(refused):\n",
		"	case event == recovery.ClaimBehind && refused == nil:\n",
		[]detector{scenarios, simulation.seeds(700), lost}},
	{"a rebase replaces whatever is there", "a rebase names what it replaces", "tile/install.go",
		"Replaces: replaces}", "Replaces: nil}", []detector{scenarios, simulation.seeds(700), lost}},
	{"the store does not compare what a rebase replaces", "a rebase names what it replaces",
		"fence/redisfence/lua/rebase.lua", "local elsewhere = not any and (", "local elsewhere = false and (",
		[]detector{storeSuite, onServers("memory and Redis", "./stream/memstream", "^TestDifferential$")}},
	{"an answer does not wait for replicas", "a replicated tile answers when its replicas have the batch",
		"tile/owner.go", "	if replicated {\n		return o.cfg.Replicas\n", "	if replicated {\n		return 0\n",
		[]detector{scenarios, model, campaign("tail-and-owner-lost", "20s")}},
	{"the journal's tail is forgotten", "what the journal has ahead of the stream is the tile's",
		"tile/internal/durable/durable.go", "	case len(c.Tail) > 0:\n			c.At =",
		"	case len(c.Tail) > 0 && c.Tail[0].Seq == 0:\n			c.At =",
		[]detector{scenarios, model, campaign("tail-and-owner-lost", "20s")}},
	{"an attempt in doubt is withdrawn", "an attempt that may have arrived stays counted", "admission/deliver.go",
		"	return false\n}\n\nfunc asRouteError", "	return true\n}\n\nfunc asRouteError",
		[]detector{allBut("admission", "./admission", "^TestRandomFaults$"), admissionRandom, whole,
			campaign("client-answers-lost", "15s")}},
	{"evidence of one copy counts", "evidence is what every replica has", "admission/reconcile.go",
		"	err := r.store.Confirm(ctx, id, at)\n", "	err := error(nil)\n",
		[]detector{tests("evidence", "./admission", "^TestEvidence$"), whole, campaign("only-copy-lost", "75s")}},
	{"too little is given back", "a refund is the price", "admission/dynamoledger/settle.go",
		`dynamotx.Number(a.Cost), ":one"`, `dynamotx.Number(a.Cost - 1), ":one"`,
		[]detector{onDynamo("ledger suite", "./admission/dynamoledger", "."), campaign("client-answers-lost", "15s")}},
	{"a client forgets what it was shown", "a client keeps a floor of epochs", "relay/relayclient/receive.go",
		"	t.at, t.synced, t.floor = p, true, max(t.floor, p.Epoch)", "	t.at, t.synced = p, true",
		[]detector{tests("client", "./relay/relayclient", "."), campaign("relay-isolated", "20s")}},
	{"a relay takes what it has for all there is", "a client is sent back by the store alone", "relay/subscription.go",
		"lower || more && h.answered <= s.since", "lower || more && false",
		[]detector{tests("relay", "./relay", "."), watched, campaign("relay-isolated", "40s")}},
	{"a WAIT that failed counts", "an error of WAIT confirms nothing", "fence/redisfence/node.go",
		"		return 0, max(had, 1)\n", "		return max(had, 1), max(had, 1)\n",
		[]detector{replicaUnits, owncluster, campaign("confirmations-reset", "25s")}},
	{"replicas that are down do not count", "every replica the shard has confirms", "fence/redisfence/replicas.go",
		"	return max(connected, listed), err\n", "	return connected, err\n",
		[]detector{replicaUnits, owncluster, campaign("fence-moved-back", "15s")}},
	{"old epochs are forwarded", "readers keep an epoch floor", cursor,
		"	case e.Epoch < current:\n		return superseded\n	case e.Epoch < c.floor:\n		return fenced\n", "",
		[]detector{bridgeTests, bridgeRandom, watched, campaign("outshone", "25s")}},
	{"no floor of epochs", "readers keep an epoch floor", cursor,
		"	case e.Epoch < c.floor:\n		return fenced\n", "",
		[]detector{bridgeTests, bridgeRandom, campaign("outshone", "25s")}},
	{"a mark without its position", "a bridge notices what was replaced while none ran", "bridge/world.go",
		"			marks[i].last = t.cursor.last\n", "			marks[i].last = fence.Position{}\n",
		[]detector{bridgeTests, bridgeRandom}},
	{"age alone drops a mark (memory)", "silence, not age", "stream/memstream/marks.go",
		"	case m.Silent != 0 && m.Silent <= now-lease/2:\n", "	case m.Moved < now-lease:\n",
		[]detector{tests("log suite in memory", "./stream/memstream", "^TestLog$"),
			tests("readers in memory", "./stream/memstream", "^TestReaders$")}},
	{"age alone drops a mark", "silence, not age", "fence/redisfence/lua/trim.lua",
		"(noted and noted <= newest - lease / 2)", "at < newest - lease", []detector{logSuite, readers}},
	{"a trim takes the entry at the floor", "the entry at the floor stays", "fence/redisfence/lua/trim.lua",
		"'MINID', floor .. '-0')", "'MINID', (tonumber(floor) + 1) .. '-0')", []detector{logSuite, readers}},
	{"readers do not learn what is gone", "a reader that needs a removed entry is notified",
		"fence/redisfence/lua/mark.lua", "s + 1 < trimmed and 'resync' or 'ok'", "'ok'", []detector{logSuite, readers}},
	{"a master without a replica confirms alone", "a confirmed write is on two servers", "fence/redisfence/store.go",
		"cmp.Or(c.MinReplicas, 1)", "cmp.Or(c.MinReplicas, 0)",
		[]detector{owncluster, campaign("only-copy-lost", "25s")}},
	{"a master without an append-only file is accepted", "Load checks that a restarted master has what it had",
		"internal/redislib/check.go", `InfoField(info, "aof_enabled") != "1" {`,
		`InfoField(info, "aof_enabled") == "-" {`,
		[]detector{owncluster, tests("settings", "./fence/redisfence", "^TestSettingsThatLose$")}},
	{"an outcome is forgotten within the retry window", "outcomes are remembered for longer than actions are sent",
		"tile/config.go", "	case c.RememberFor <= c.RetryWindow:\n", "	case c.RememberFor < 0:\n",
		[]detector{scenarios, tests("servers", ".", "^TestSettingsThatAreRefused$")}},
	{"a follower's probe writes", "a follower leaves no trace in the journal", "tile/internal/durable/durable.go",
		"	_, err := s.Journal.Tail(ctx, s.Tile, after)\n	return err\n",
		"	_ = s.Journal.Seal(ctx, s.Tile, 1)\n	_, err := s.Journal.Tail(ctx, s.Tile, after)\n	return err\n",
		[]detector{scenarios, tests("journal units", "./tile/internal/durable", "^Test")}},
	{"an append does not name its predecessor", "the journal takes what follows its end",
		"checkpoint/dynamocheckpoint/journal.go", "AND #end = :prev\"",
		"AND (#end = :prev OR attribute_exists(#end))\"",
		[]detector{journalSuite, journalFaults}},
	{"a tile speaks of what may be lost", "what crosses a border is spoken of when every replica has it",
		speech, "	case confirmed && !s.journal, s.through && crosses:\n", "	case true:\n",
		[]detector{seam, ships, travellers}},
	{"a tile speaks of what its journal has not", "a tile with a journal speaks of what that has",
		speech, "journal: journal, through", "journal: through, through",
		[]detector{seam, ships, travellers, crossings}},
	{"a tile answers what may be lost", "what crosses a border is spoken of when every replica has it",
		"tile/border.go", "c, changed, serves := b.speech.Stable.With(p.From)",
		"c, changed, serves := b.history.Transfers.With(p.From)", []detector{ships, nothing, travellers}},
	{"what is decided is not in the snapshot", "a mark is a part of the tile's state, and nothing expires",
		"internal/transfer/encode.go", "stream.AppendTransferID(b, c.Mark), c.Refused)",
		"stream.AppendTransferID(b, stream.TransferID{}), c.Refused)",
		[]detector{seam, ships, transferUnits, travellers, crossings}},
	{"a tile takes what it has decided", "a destination decides what follows its mark", channel,
		"	if after == c.Mark {\n		return all, true\n	}\n", "	if true {\n		return all, true\n	}\n",
		[]detector{seam, ships, travellers}},
	{"a tile takes what does not follow", "a destination decides what follows its mark", channel,
		"	return nil, false\n", "	return all, true\n", []detector{seam, transferUnits, travellers}},
	{"refusals are forgotten unsettled", "a refusal is kept until it is settled", channel,
		"	if len(c.Refused) == 0 || c.Refused[0].ID.Compare(settled) > 0 {\n" +
			"		return stream.TransferID{}\n	}\n	return settled\n",
		"	if len(c.Refused) > 0 {\n		settled = c.Mark\n	}\n	return settled\n",
		[]detector{seam, transferUnits, travellers}},
	{"a tile settles what is not decided", "an outbox keeps a departure until it is decided", channel,
		"		if t.ID.Compare(mark) > 0 {\n", "		if t.ID.Compare(mark) > 0 && i > 0 {\n",
		[]detector{seam, ships, travellers}},
	{"an outbox is not in the snapshot", "what is under way is a part of the tile's state",
		"tile/internal/history/envelope.go", "	actions = transfers.Append(actions)\n", "",
		[]detector{ships, refusals, travellers, crossings}},
	{"a tile answers what it has not decided", "what crosses a border is spoken of when every replica has it",
		"tile/border.go", "		_, joins := c.Fresh(p.After, p.Transfers)\n",
		"		_, joins := c.Fresh(p.After, p.Transfers)\n		if n := len(p.Transfers); n > 0 {\n" +
			"			return Answer{Mark: p.Transfers[n-1].ID}, nil\n		}\n",
		[]detector{ships, refusals, travellers}},
	{"a mark is forgotten with the refusals", "a mark is a part of the tile's state, and nothing expires", state,
		"	if !d.Mark.IsZero() {\n", "	if !d.Mark.IsZero() || !d.Forget.IsZero() {\n",
		[]detector{seam, transferUnits, travellers}},
	{"numbers are counted by each outbox", "numbers do not come back", state,
		"stream.TransferID{Epoch: at.Epoch, Seq: at.Seq, Index: i + 1}",
		"stream.TransferID{Epoch: 1, Seq: fence.Seq(len(f.With(b.Departures[i].To).Outbox) + 1), Index: 1}",
		[]detector{seam, ships}},
	{"what is taken back stays parked", "what the rules fail with is parked until they take it", state,
		"		left = slices.Delete(left, i, i+1)\n", "		_ = i\n", []detector{seam, ships}},
	{"what the rules fail with is forgotten", "what the rules fail with is parked until they take it", state,
		"		c.Parked = append(slices.Clip(c.Parked), Return{c.Outbox[i], p.Reason})\n", "",
		[]detector{seam, ships, refusals}},
	{"rules are not told what may come back", "a place is kept for what is under way", "tile/decide.go",
		"	in.UnderWay = o.history.Transfers.UnderWay()\n", "	in.UnderWay = 0\n",
		[]detector{ships, refusals}},
	{"a tile with something under way rests", "a tile with something under way has an owner", state,
		"		if len(c.Outbox) > 0 {\n			return false\n",
		"		if len(c.Outbox) > 0 {\n			return true\n",
		[]detector{seam, tests("waking", "./internal/spawn", "UnderWayWakes$")}},
	{"unlike tiles exchange entities", "both ends promise the same, or nothing crosses", speech,
		"return theirs == ours || mixed }", "return theirs == ours || mixed || theirs }", []detector{seam, unlike}},
	{"a border that refuses stays open", "back-pressure is known before", "tile/neighbor.go",
		"(n.refuses || time.Since(n.failing) > closedAfter)", "time.Since(n.failing) > closedAfter",
		[]detector{tests("closed borders", "./tile", "^TestABorderThat"), unlike}},
	{"a border stays open while nothing is confirmed", "back-pressure is known before", "tile/neighbor.go",
		"closed := b.shut() || n != nil", "closed := n != nil",
		[]detector{nothing, ships}},
	{"a commit under an old epoch is taken", "the store compares epochs", commit,
		"  if e < current then\n", "  if false then\n", []detector{storeSuite, contest}},
	{"a commit at any position is taken", "the store compares positions", commit,
		"  elseif last == args[4] then\n", "  elseif true then\n", []detector{storeSuite, contest}},
	{"a commit of another chain is taken", "the store compares chains", commit,
		"  elseif last == args[4] then\n", "  elseif le == pe and ls == ps then\n", []detector{storeSuite, contest}},
	{"a check that ran out of time is silent", "a checker that cannot decide fails the run",
		"internal/robustness/check/linearize.go", "case porcupine.Unknown:", "case porcupine.CheckResult(\"never\"):",
		[]detector{tests("checks", "./internal/robustness/check", "."),
			tests("hard history", "./internal/robustness/simulation", "^TestAHistoryThatIsTooHardFails$")}},
}

// modelled says which rule of the specification a mutant takes out of the code. Without the rule, package spec finds an
// order of steps that breaks an invariant. It is a second reason to keep the rule, and no second detector: the model of
// the commit protocol is not the code. That of borders plays the code, and is a detector.
var modelled = map[string]spec.Rule{
	"re-append skips a batch":                              spec.Reappends,
	"re-append forgets the last batch":                     spec.Reappends,
	"an owner replaces what an earlier one went on with":   spec.WhoWentOnCounts,
	"a rebase is tried again over what it was refused for": spec.WhoWentOnCounts,
	"a rebase replaces whatever is there":                  spec.RebaseNamesWhat,
	"the store does not compare what a rebase replaces":    spec.RebaseNamesWhat,
	"stale owner rebases on its own state":                 spec.LaterOwnerCounts,
	"a twin is not noticed":                                spec.LaterOwnerCounts,
	"an install is not confirmed":                          spec.InstallConfirmed,
	"a lost append counts":                                 spec.JournalFirst,
	"the journal is read before it is sealed":              spec.SealedBeforeRead,
	"replicas that are down do not count":                  spec.CopiesCounted,
	"old epochs are forwarded":                             spec.FloorOfEpochs,
	"no floor of epochs":                                   spec.FloorOfEpochs,
	"a tile speaks of what may be lost":                    spec.PresentsStable,
	"a tile speaks of what its journal has not":            spec.JournalSpoken,
	"a tile answers what may be lost":                      spec.AnswersStable,
	"what is decided is not in the snapshot":               spec.MarksKept,
	"a mark is forgotten with the refusals":                spec.MarksKept,
	"a tile takes what it has decided":                     spec.DecidedOnce,
	"a tile takes what does not follow":                    spec.FollowsMark,
	"refusals are forgotten unsettled":                     spec.RefusalsKept,
	"a tile settles what is not decided":                   spec.DecidedFirst,
	"what is taken back stays parked":                      spec.RetakenLeaves,
	"what the rules fail with is forgotten":                spec.ParkedKept,
	"a tile with something under way rests":                spec.AwakeUnderWay,
	"unlike tiles exchange entities":                       spec.BordersAlike,
}
