package check

import (
	"github.com/tilefence/tilefence/internal/robustness/history"
)

// AsksFirst is the rule behind every repair: an owner whose batch the store has refused presents no install and no
// rebase before the authority has answered it again. The refusal says that something came in between, and only the
// authority knows whether that is another owner.
//
// It is broken by an owner that installs itself again, appends its batches again or rebases on its own word. The
// store often refuses such an owner as well, so that nothing is lost; the check sees it all the same. It does not
// see whether the owner does what the authority says: rejected writer stops does. Refreshes do not count, since
// some are sent beside a batch that waits, whose own answer decides.
func AsksFirst(t *Tile) {
	doubts := map[string]*doubt{}
	for _, e := range t.answersAndCalls() {
		d := doubts[e.op.Actor()]
		if d == nil {
			d = &doubt{installs: map[history.Position]bool{}}
			doubts[e.op.Actor()] = d
		}
		switch e.op.Kind {
		case history.Lookup, history.Claim, history.Promote:
			d.ask(&e)
		case history.Commit, history.Rebase:
			if e.answer {
				d.answered(&e)
			} else if d.repairs(e.op) {
				t.breaks(e.at, "%s presents a %s after it was refused as %s, and has not asked the authority since",
					e.op.Actor(), e.op.Kind, d.reason)
				d.refused = 0
			}
		}
	}
}

// doubt is what a client has to ask the authority about.
type doubt struct {
	asked    bool  // it has, at any time: a client that never does is a fault of the campaign and no processor
	refused  int64 // when the store refused it; zero: it has asked since
	reason   string
	installs map[history.Position]bool // that were refused: presented again, unchanged, they decide nothing new
}

func (d *doubt) ask(e *event) {
	d.asked = true
	if e.answer && e.op.At > d.refused && !e.op.Result.Open() {
		d.refused = 0
	}
}

func (d *doubt) answered(e *event) {
	c := e.op.Commit
	if e.op.Result.Outcome != history.Refused || c != nil && c.Refresh() {
		return
	}
	d.refused, d.reason = e.at, e.op.Result.Reason
	if c != nil && c.Install {
		d.installs[c.Next] = true
	}
}

// repairs reports whether an operation acts on what the client has not asked about.
func (d *doubt) repairs(o *history.Operation) bool {
	if !d.asked || d.refused == 0 {
		return false
	}
	return o.Kind == history.Rebase || o.Commit.Install && !d.installs[o.Commit.Next]
}
