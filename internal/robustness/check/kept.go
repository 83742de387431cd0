package check

import "github.com/tilefence/tilefence/internal/robustness/history"

// AnswersKept is what the durability classes above the default promise: what a client was answered is in the history
// that survives, whoever died. A history says in its final records which tiles have such a class.
//
// It is broken when an owner answers before replicas or journal have the batch, and when a successor does not read what
// the journal has.
func AnswersKept(t *Tile) {
	if !t.Final.Kept || !t.Unknown.IsZero() {
		return // NoFork reports what is unknown
	}
	actions := t.decisions()
	for _, o := range t.Operations {
		if o.Kind != history.Submit || o.Intent.Action == "" || o.Open() || o.Result.Outcome != history.OK {
			continue
		}
		if d := actions[o.Intent.Action]; d == nil || d.survived == "" {
			t.breaks(o.Returned, "%s was answered that action %s is %s, and the history that survived does not have it",
				o.Actor(), o.Intent.Action, o.Result.Answer)
		}
	}
}
