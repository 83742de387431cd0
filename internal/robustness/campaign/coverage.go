//go:build unix

package campaign

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/robustness/history"
	"github.com/tilefence/tilefence/tile"
)

// coverage counts how often each rule of the protocol acted. A campaign without violations proves nothing about a
// rule that never did.
type coverage map[string]int

// rules are those that coverage counts, as the report lists them.
var rules = []struct{ name, about string }{
	{"claimed", "the authority granted a tile without an owner"},
	{"promoted", "the authority granted a tile that another process held"},
	{"lost", "a claim was refused, since another one had come first"},
	{"installed", "an owner confirmed its epoch on every replica"},
	{"confirmed", "a batch was confirmed by every replica: in its turn, or since its tile's class waits for them"},
	{"unconfirmed", "a write was on the master, and not on enough replicas"},
	{"again", "a batch that had been lost sight of was presented again, and was there"},
	{"unknown", "a write had no answer"},
	{"stale", "the store refused an epoch below its owner's"},
	{"noowner", "the store had no owner hash, or one of an older epoch"},
	{"behind", "a failover had lost the end of the stream"},
	{"replay", "an older owner had committed after the replay"},
	{"forked", "the store had another history of the writer's epoch, or another claimant of it"},
	{"re-appended", "an owner wrote batches again that a failover had lost, or an owner hash that was gone"},
	{"rebased", "a serving owner replaced the history by its state"},
	{"born", "a tile began empty"},
	{"healing", "an owner acquired its tile anew"},
	{"reclaimed", "an owner went above a claim that was not taken up, or above an authority that had forgotten it"},
	{"outshone", "an owner went above an epoch that watchers had been shown, and that its stores had forgotten"},
	{"superseded", "an owner learned its successor, and stood down"},
	{"gave way", "an owner stood down for an earlier one, to which store and authority had been set back"},
	{"following", "a follower stood by"},
	{"handed over", "an owner gave its tile to a successor"},
	{"remembered", "an action was answered again with its first outcome"},
	{"redirected", "an intent was sent on to another owner"},
	{"snapshot", "an owner saved a snapshot"},
	{"restored", "the authority was restored to an older state, or an older standby of it promoted"},
	{"forgotten", "it had granted the tile since, and lacks that"},
	{"bridge went back", "a bridge forwarded what was written in the place of lost entries"},
	{"view reset", "a watcher took a state from scratch"},
	{"sealed", "a claimant took a journal over"},
	{"restored from its journal", "a claimant rebased on what the journal had ahead of the stream"},
	{"paid", "a player's action had its price taken, and kept"},
	{"refunded", "a price was given back"},
	{"crossed", "a traveller was at the end in another tile than the one it was born in"},
}

// count adds what a run's history shows.
func (c coverage) count(h *history.History) {
	for i := range h.Operations {
		c.operation(&h.Operations[i])
	}
	c.forgotten(h.Operations)
	answered := map[string]bool{}
	for i := range h.Operations {
		if o := &h.Operations[i]; o.Kind == history.Submit && o.Intent.Action != "" && o.Result.Answer != "" {
			if answered[o.Intent.Action] {
				c["remembered"]++
			}
			answered[o.Intent.Action] = true
		}
	}
	c.records(h.Records)
	c.crossed(h.Records)
}

// crossed counts travellers that are not where they were born.
func (c coverage) crossed(all []history.Record) {
	for i := range all {
		if f := all[i].Final; f != nil {
			for _, name := range f.Here {
				c.when(!slices.Contains(f.Born, name), "crossed")
			}
		}
	}
}

// forgotten counts how often an authority that was restored, or promoted, lacked the last grant of a tile.
func (c coverage) forgotten(operations []history.Operation) {
	granted := map[fence.TileID]fence.Epoch{}
	for i := range operations {
		switch o := &operations[i]; {
		case o.Kind == history.Restore:
			c.when(o.Row.Epoch < granted[o.Tile], "forgotten")
			granted[o.Tile] = o.Row.Epoch
		case o.Result.Grant != nil && o.Result.Outcome == history.OK:
			granted[o.Tile] = max(granted[o.Tile], o.Result.Grant.Epoch)
		}
	}
}

// records counts what was observed.
func (c coverage) records(all []history.Record) {
	type life struct { // of a bridge
		name string
		tile fence.TileID
	}
	published, journal := map[life]fence.Seq{}, map[string]bool{} // journal: who has just read one
	wrote := map[string]history.Position{}                        // what a processor presented last
	shown := map[fence.TileID]fence.Epoch{}                       // to watchers
	for i := range all {
		switch r := &all[i]; r.Kind {
		case history.Published:
			bridge := life{r.Actor(), r.Tile}
			if r.Entry.Position.Seq <= published[bridge] {
				c["bridge went back"]++
			}
			published[bridge] = r.Entry.Position.Seq
		case history.Frame:
			shown[r.Tile] = max(shown[r.Tile], r.Entry.Position.Epoch)
		case history.Reset:
			c["view reset"]++
		case history.Sealed:
			c["sealed"]++
		case history.Recovered:
			journal[r.Actor()] = true
		case history.Commit:
			delete(journal, r.Actor())
			own := !r.Commit.Prev.IsZero() && r.Commit.Prev == wrote[r.Actor()]
			c.when(own && r.Commit.Prev.Epoch != r.Commit.Epoch, "reclaimed")
			wrote[r.Actor()] = r.Commit.Next
		case history.Rebase:
			c.when(journal[r.Actor()], "restored from its journal")
			c.when(outshone(wrote[r.Actor()].Epoch, shown[r.Tile], r.Rebase.Epoch), "outshone")
		case history.Paid:
			c.when(r.Payment.Refunded, "refunded")
			c.when(r.Payment.Reason == "" && !r.Payment.Refunded, "paid")
		case history.Life:
			c.life(r.Life)
		}
	}
}

// outshone reports whether an owner that had served below an epoch that watchers were shown went above it.
func outshone(own, shown, next fence.Epoch) bool { return own > 0 && own < shown && next > shown }

// operation counts what an operation and its answer show.
func (c coverage) operation(o *history.Operation) {
	c.answer(o)
	ok := o.Result.Outcome == history.OK
	switch o.Kind {
	case history.Claim:
		c.when(ok, "claimed")
	case history.Promote:
		c.when(ok, "promoted")
	case history.Restore:
		c["restored"]++
	case history.Snapshot:
		c.when(ok, "snapshot")
	case history.Commit:
		if ok {
			c.commit(o)
		}
	case history.Rebase:
		c.when(ok && o.Rebase.Born(), "born")
		c.when(ok && !o.Rebase.Born(), "rebased")
	}
}

// commit counts a commit that was taken.
func (c coverage) commit(o *history.Operation) {
	install, own := o.Commit.Install, o.Commit.Prev.Epoch == o.Commit.Epoch
	c.when(!install && o.Commit.Replicas != 0, "confirmed")
	c.when(o.Result.Duplicate, "again")
	c.when(install && !own, "installed")
	c.when(install && own && o.Commit.Events > 0, "re-appended")
}

// answer counts what was answered.
func (c coverage) answer(o *history.Operation) {
	switch o.Result.Outcome {
	case history.Unconfirmed:
		c["unconfirmed"]++
	case history.Refused:
		c[o.Result.Reason]++
	case history.Lost:
		c["lost"]++
	case history.Unknown:
		c.when(o.Kind == history.Commit || o.Kind == history.Rebase, "unknown")
	}
	redirected := strings.Contains(o.Result.Err, tile.ErrRedirect.Error()) || o.Result.Answer == "redirected"
	c.when(o.Kind == history.Submit && redirected, "redirected")
}

func (c coverage) life(l *history.LifeEvent) {
	c.when(l.Handed, "handed over")
	c.when(l.Ended && l.Successor != nil, "superseded")
	c.when(l.Ended && l.Successor != nil && l.Successor.Epoch < l.Epoch, "gave way")
	c.when(!l.Ended && l.State == tile.Healing.String(), "healing")
	c.when(!l.Ended && l.State == tile.Following.String(), "following")
}

func (c coverage) when(acted bool, rule string) {
	if acted {
		c[rule]++
	}
}

// Never names the rules that did not act in any run.
func (s *Summary) Never() (names []string) {
	for _, rule := range rules {
		if !slices.ContainsFunc(s.Results, func(r Result) bool { return r.Acted[rule.name] > 0 }) {
			names = append(names, rule.name)
		}
	}
	return names
}

// coverageTable says how often each rule acted, and in how many runs.
func (s *Summary) coverageTable(b *strings.Builder) {
	b.WriteString("## How often each rule acted\n\nA run proves nothing about a rule that did not act in it.\n\n" +
		"| rule | acted | in runs | what it is |\n|---|---:|---:|---|\n")
	for _, rule := range rules {
		total, runs := 0, 0
		for i := range s.Results {
			if n := s.Results[i].Acted[rule.name]; n > 0 {
				total, runs = total+n, runs+1
			}
		}
		acted := fmt.Sprint(total)
		if total == 0 {
			acted = "**never**"
		}
		fmt.Fprintf(b, "| %s | %s | %d | %s |\n", rule.name, acted, runs, rule.about)
	}
	b.WriteString("\n")
}
