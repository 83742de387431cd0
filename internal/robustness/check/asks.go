package check

import (
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// AsksFirst is the rule behind every repair: an owner whose batch the store has refused presents no install and no rebase
// before the authority has answered it again. The refusal says that something came in between, and only the authority
// knows whether that is another owner.
//
// It is broken by an owner that installs itself again, appends its batches again or rebases on its own word. The store
// often refuses such an owner as well, so that nothing is lost; the check sees it all the same. It does not see
// whether the owner does what the authority says: rejected writer stops does. Refreshes do not count, since some are sent
// beside a batch that waits, whose own answer decides.
func AsksFirst(t *Tile) {
	type standing struct {
		asked   bool  // it has, at any time: a client that never does is a fault of the campaign and no processor
		refused int64 // when the store refused it; zero: it has asked since
		reason  string
		install history.Position // of a refused install: presented again, unchanged, it decides nothing new
	}
	standings := map[string]*standing{}
	for _, e := range t.answersAndCalls() {
		s := standings[e.op.Actor()]
		if s == nil {
			s = &standing{}
			standings[e.op.Actor()] = s
		}
		switch kind := e.op.Kind; {
		case kind == history.Lookup, kind == history.Claim, kind == history.Promote:
			s.asked = true
			if e.answer && e.op.At > s.refused && !e.op.Result.Open() {
				s.refused = 0
			}
		case kind != history.Commit && kind != history.Rebase:
		case e.answer:
			if e.op.Result.Outcome == history.Refused && (kind == history.Rebase || !e.op.Commit.Refresh()) {
				s.refused, s.reason, s.install = e.at, e.op.Result.Reason, history.Position{}
				if kind == history.Commit && e.op.Commit.Install {
					s.install = e.op.Commit.Next
				}
			}
		case s.asked && s.refused != 0 && (kind == history.Rebase ||
			e.op.Commit.Install && e.op.Commit.Next != s.install):
			t.breaks(e.at, "%s presents a %s after it was refused as %s, and has not asked the authority since",
				e.op.Actor(), kind, s.reason)
			s.refused = 0
		}
	}
}
