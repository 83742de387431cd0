package spec

import (
	"fmt"
	"strings"
)

// entry is one batch: its epoch, who wrote it, and which it is of those; zero of them is an install or a rebase.
type entry uint8

func entryOf(epoch, owner, serial uint8) entry { return entry(epoch<<4 | owner<<3 | serial) }

func (e entry) epoch() uint8  { return uint8(e) >> 4 }
func (e entry) owner() uint8  { return uint8(e) >> 3 & 1 }
func (e entry) serial() uint8 { return uint8(e) & 7 }

func (e entry) String() string {
	if e.serial() == 0 {
		return fmt.Sprintf("%d:%c", e.epoch(), 'P'+e.owner())
	}
	return fmt.Sprintf("%d:%c%d", e.epoch(), 'P'+e.owner(), e.serial())
}

// maxLog is the longest history.
const maxLog = 7

// history is a tile's whole history. Being compared as a whole, it is its own chain.
type history struct {
	n uint8
	e [maxLog]entry
}

func (h history) last() entry {
	if h.n == 0 {
		return 0
	}
	return h.e[h.n-1]
}

func (h history) epoch() uint8 { return h.last().epoch() }

func (h history) full() bool { return h.n == maxLog }

func (h history) and(e entry) history {
	h.e[h.n] = e
	h.n++
	return h
}

func (h history) first(n uint8) history {
	var f history
	f.n = n
	copy(f.e[:n], h.e[:n])
	return f
}

// extends reports whether h begins with o.
func (h history) extends(o history) bool { return h.n >= o.n && h.first(o.n) == o }

func (h history) String() string {
	var names []string
	for _, e := range h.e[:h.n] {
		names = append(names, e.String())
	}
	return "[" + strings.Join(names, " ") + "]"
}

// grant is a row of the authority.
type grant struct{ epoch, holder uint8 }

// node is one copy of the coordination store. The owner hash says what the last entry says, or is gone.
type node struct {
	log  history
	hash bool
}

type phase uint8

const (
	idle      phase = iota // no process, or one that begins anew
	looked                 // it has read the authority's row and the store's epochs
	claimed                // it has an epoch
	read                   // it has read the journal, and not sealed it yet: only without the rule
	sealed                 // it has sealed and read the journal
	ready                  // it has replayed, and presents its install
	rebasing               // it presents a rebase on the state that it has
	installed              // its install, or rebase, is on a master
	serving
)

// proc is one process that may own the tile.
type proc struct {
	phase   phase
	route   uint8 // the node that it takes for the master
	epoch   uint8
	saw     uint8 // the authority's epoch when it looked
	floor   uint8 // the store's
	log     history
	acked   uint8   // how long the history is that it has acknowledged
	serial  uint8   // of its last batch
	pend    entry   // presented, fate unknown
	asInst  bool    // it is presented as an install
	rebased bool    // it is installed by a rebase
	stored  bool    // it is in the store, and not in the journal yet
	base    history // what the journal had when it was read
	over    history // what it replaces by a rebase
}

// request is one on its way, to be delivered at any time or never.
type request struct {
	there, install, rebase bool
	to                     uint8
	prev, over             history // what it follows; what a rebase replaces
	entry                  entry
}

type state struct {
	row    grant
	past   [4]grant // rows it had, oldest first
	passed uint8

	nodes  [2]node
	master uint8
	stray  bool // the other node was the master: it answers those who take it for that, and follows no one

	procs  [2]proc
	flight [2]request

	shown history // to the watcher
	floor uint8   // the highest epoch it was shown

	journal history
	seal    uint8

	// What no process knows: what was promised, and the faults that are left.
	confirmed history
	through   history  // acknowledged by write-through
	served    [8]uint8 // by epoch: who served it, plus one
	left      budget
}

// budget bounds a search.
type budget struct {
	epochs, batches                                                          uint8
	failovers, restores, expiries, crashes, late, losses, jrestores, empties uint8
}
