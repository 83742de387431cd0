package history

import (
	"cmp"
	"math"
	"slices"

	"github.com/tilefence/tilefence/fence"
)

// Never is the return time of an operation that is still open.
const Never = math.MaxInt64

// Operation is a call with its answer.
type Operation struct {
	Record         // the call
	Returned int64 // time of the answer; Never while the operation is open
	Result   Result
}

// Open reports whether the operation may still take effect.
func (o *Operation) Open() bool { return o.Returned == Never }

// Applied reports whether the caller was answered that the write is in the store, if only on a master.
func (o *Operation) Applied() bool { return !o.Open() && o.Result.Applied() }

// Actor names the caller: clients of different processes are different.
func (o *Operation) Actor() string { return o.Process + "/" + o.Client }

// Actor names the recorder: clients of different processes are different.
func (r *Record) Actor() string { return r.Process + "/" + r.Client }

// History is the records of all processes, in order of time, and their operations.
type History struct {
	Records    []Record
	Operations []Operation // by time of call
}

// Join sorts records by time and joins calls with returns.
func Join(records []Record) *History {
	h := &History{Records: slices.Clone(records)}
	slices.SortStableFunc(h.Records, func(a, b Record) int { return cmp.Compare(a.At, b.At) })
	type key struct {
		process string
		op      uint64
	}
	open := map[key]int{}
	for _, r := range h.Records {
		switch {
		case r.Op == 0:
		case r.Kind != Return:
			open[key{r.Process, r.Op}] = len(h.Operations)
			h.Operations = append(h.Operations, Operation{Record: r, Returned: Never})
		default:
			i, ok := open[key{r.Process, r.Op}]
			if !ok || r.Result == nil {
				continue // its call was in a file that is not here
			}
			o := &h.Operations[i]
			o.Result = *r.Result
			if !r.Result.Open() {
				o.Returned = r.At
			}
		}
	}
	return h
}

// Tiles lists the tiles that the history mentions.
func (h *History) Tiles() []fence.TileID {
	seen := map[fence.TileID]bool{}
	var tiles []fence.TileID
	for i := range h.Records {
		if t := h.Records[i].Tile; t != 0 && !seen[t] {
			seen[t] = true
			tiles = append(tiles, t)
		}
	}
	slices.Sort(tiles)
	return tiles
}

// FirstFault is the time of the first fault; Never if there was none.
func (h *History) FirstFault() int64 {
	for i := range h.Records {
		if h.Records[i].Kind == Fault {
			return h.Records[i].At
		}
	}
	return Never
}
