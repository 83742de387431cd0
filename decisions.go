package tilefence

import (
	"errors"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/decision"
	"github.com/tilefence/tilefence/internal/hook"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// DecisionLog is a file of what the servers of a process decided and were answered: claims, installs, commits, rebases,
// snapshots, refusals, confirmations, ends of owners, spends, refunds, and where matches play. "tilectl verify trace"
// replays the files of all processes, and says what they prove, or which promise was broken first.
//
// An event takes some hundred nanoseconds and some 100 bytes; a tick that commits is one event. The file grows without
// bound, and no decision waits for it: when the disk does not follow, events are dropped, counted, and missed by
// tilectl. After a kill, up to 0.2 s are missing at its end.
//
// All methods may be called from any goroutine.
type DecisionLog struct{ log *decision.Log }

// CreateDecisionLog makes the file at path, or empties it. The caller closes the log after the servers have ended.
func CreateDecisionLog(path string) (*DecisionLog, error) {
	l, err := decision.Create(path)
	if err != nil {
		return nil, err
	}
	return &DecisionLog{l}, nil
}

// Close writes what is left and closes the file. The error is the first of the file, or says how many events were
// dropped. What is decided afterwards is not logged.
func (d *DecisionLog) Close() error { return d.log.Close() }

// Dropped is how many events were dropped so far.
func (d *DecisionLog) Dropped() uint64 { return d.log.Dropped() }

// server is what logs for the server at an address. Nil logs nothing.
func (d *DecisionLog) server(addr string) *decision.Server {
	if d == nil {
		return nil
	}
	return d.log.Server(addr)
}

// logEnds has the ends of a host's owners logged.
func logEnds(to *decision.Server, hooks *tilehost.Hooks) {
	if to == nil {
		return
	}
	hook.Attach(&hooks.Ended, func(i tilehost.EndInfo) {
		held, successor := i.Status.Epoch, fence.Owner{}
		if s, ok := errors.AsType[*tile.SupersededError](i.Err); ok {
			held, successor = s.Held, s.Successor
		}
		to.Ended(i.Status.Tile, held, successor)
	})
}

// spends are hooks that log what a gateway's ledger answers, and call those that there are.
func (d *DecisionLog) spends(addr string, hooks admission.Hooks) admission.Hooks {
	to := d.server(addr)
	if to == nil {
		return hooks
	}
	hook.Attach(&hooks.Admitted, func(i admission.AdmitInfo) {
		if i.Err == nil {
			to.Admitted(i.ActionID, i.Duplicate)
		}
	})
	hook.Attach(&hooks.Settled, func(i admission.SettleInfo) {
		if i.Err == nil {
			to.Settled(i.ActionID, i.Refunded)
		}
	})
	return hooks
}
