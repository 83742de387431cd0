package history

import (
	"errors"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// Submit records that a client sends an intent to contact, and returns what records the answer. An answer
// that leaves the fate unknown (tile.ErrUnresolved, a broken connection, a timeout) leaves the operation
// open; a redirect or an overloaded queue is NotApplied.
func (r *Recorder) Submit(client string, in *tile.Intent, contact string) (end func(stream.Outcome, error)) {
	done := r.call(Record{Client: client, Kind: Submit, Tile: in.Tile,
		Intent: &IntentCall{Action: in.ActionID, Contact: contact}})
	return func(o stream.Outcome, err error) {
		result := resultOf(decision.Judge(err), err)
		switch {
		case err == nil:
			result.Answer = o.String()
		case errors.Is(err, tile.ErrRedirect), errors.Is(err, tile.ErrOverloaded):
			result.Outcome = NotApplied
		case !errors.Is(err, fence.ErrInvalidArgument):
			result.Outcome = Unknown
		}
		done(result)
	}
}
