package tile

import (
	"log/slog"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/enum"
)

// Durability is what a tile's owner waits for before a tick counts: before it is folded into the state, and
// Submit is answered. It is chosen per tile (Config.Durability, tilehost.Config.Configure); all owners of a tile
// must choose the same.
//
// The recovery point of each, which is what can be lost of what was acknowledged:
//
//	                  owner dies   master dies   both at once                       all of coordination, and the owner
//	Checkpointed      nothing      nothing       since the last confirmation        since the last checkpoint
//	Replicated        nothing      nothing       nothing, if a replica with it is   since the last checkpoint
//	                                             promoted: always with AllReplicas
//	ReplicatedActions as Replicated for actions, and as Checkpointed for everything else
//	WriteThrough      nothing      nothing       nothing                            nothing
//	WriteBehind       nothing      nothing       what the journal has not: the      what the journal has not
//	                                             last tick, while it answers
//
// What an action that was paid for is worth follows. Its price is durable before the tile sees it, in any class. Its
// effect is as durable as the tick that decided it: on a Checkpointed tile, the loss of owner and master together can
// take back the effect of an action that was answered, up to ConfirmEvery ticks, and the price is not given back, since
// the ledger has its outcome. Choose ReplicatedActions, or more, for a tile on which players spend.
//
// An owner that lives has everything in memory and loses nothing in any class, whatever coordination loses.
//
// To change a tile's class, drain its owner (last tick, snapshot, release), let a Checkpointer store that
// snapshot, and run the tile in its new class: an owner of another class does not look into the journal.
type Durability int

// The classes.
const (
	// Checkpointed acknowledges a tick when the master has taken it. Every Config.ConfirmEvery ticks all replicas
	// confirm what came before, if they are well. It is the default, and the zero value.
	Checkpointed Durability = 0

	// Replicated acknowledges a tick that has an event or a recorded outcome when Config.Replicas replicas have
	// it: a round trip to them each tick. While they do not, the tile is frozen: the same batch is presented until
	// they confirm. A replica that is down therefore stops the tile with AllReplicas; with fewer, what a replica
	// without the batch loses when it is the one promoted is appended again by a living owner only. Ticks that
	// only refresh the owner hash do not wait.
	Replicated Durability = 1

	// WriteThrough acknowledges a tick when the master has taken it and Seams.Journal has it: a durable write each
	// tick. While the journal does not answer, the tile is frozen, and no other tile is. Needs Seams.Journal and
	// Seams.Checkpoint, and a Checkpointer, which truncates the journal behind its checkpoints.
	WriteThrough Durability = 2

	// ReplicatedActions is Replicated for ticks that record the outcome of an action, and Checkpointed for all
	// others: movement does not wait, and what was paid for is not answered before replicas have it.
	ReplicatedActions Durability = 3

	// WriteBehind is Checkpointed, and appends each batch to Seams.Journal once it is committed: a durable write for
	// each tick with events, beside the ticks, which never wait for it. What crosses the tile's border waits until the
	// journal has it, so that nothing of it is lost or in two places, whatever is lost of coordination. A journal that
	// does not answer delays only that, and a take-over. Needs what WriteThrough needs.
	WriteBehind Durability = 4
)

// Durable reports whether all that a tile of the class tells another one survives the loss of all coordination: the
// class has a journal.
func (d Durability) Durable() bool { return d == WriteThrough || d == WriteBehind }

var durabilityNames = [...]string{"checkpointed", "replicated", "write-through", "replicated-actions", "write-behind"}

// String returns the class in lower-case words.
func (d Durability) String() string { return enum.In(d, "durability", durabilityNames[:], 0) }

// LogValue implements slog.LogValuer with the form of String.
func (d Durability) LogValue() slog.Value { return slog.StringValue(d.String()) }

// ParseDurability reads the form String writes; any other is a *fence.ArgumentError.
func ParseDurability(s string) (Durability, error) {
	if i := slices.Index(durabilityNames[:], s); i >= 0 {
		return Durability(i), nil
	}
	return 0, &fence.ArgumentError{Field: "durability", Value: s, Want: strings.Join(durabilityNames[:], ", ")}
}
