package check

import (
	"fmt"

	"github.com/tilefence/tilefence/internal/robustness/history"
)

// EnoughTraffic requires that at least commits batches (refreshes and installs do not count) and actions
// answered intents came before the first fault. A campaign that breaks an idle system proves nothing, and
// looks as green as one that proves much.
func EnoughTraffic(h *history.History, commits, actions int) []Violation {
	until := h.FirstFault()
	batches, answers := 0, 0
	for i := range h.Operations {
		switch o := &h.Operations[i]; {
		case o.Returned > until || o.Open():
		case o.Kind == history.Commit && o.Applied() && o.Commit.Events > 0:
			batches++
		case o.Kind == history.Submit && o.Result.Outcome == history.OK:
			answers++
		}
	}
	var found []Violation
	for _, part := range []struct {
		what      string
		got, want int
	}{{"batches", batches, commits}, {"answered intents", answers, actions}} {
		if part.got < part.want {
			found = append(found, Violation{Check: "enough traffic",
				Detail: fmt.Sprintf("%d %s before the first fault, want at least %d", part.got, part.what, part.want)})
		}
	}
	return found
}
