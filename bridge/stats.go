package bridge

import "time"

// Stats is what a Bridge has done since it was made, and where it stands.
type Stats struct {
	Tiles   int // tiles it forwards
	Failing int // of these, tiles whose last read or publish failed
	// Backlog is how many entries are known to wait: of tiles that could not be published or are being
	// caught up with, from the last entry handed over to the end of the tile's history when it was last
	// read. It is a difference of sequences, so a jump of theirs counts as well.
	Backlog int
	// Lag is the age of the oldest entry in Backlog, by the owner's clock and this process's; while there is
	// none, the longest PublishedInfo.Lag of the last pass that published anything.
	Lag time.Duration

	Passes      uint64 // reads of the log, each with at most one publish
	Reads       uint64 // tiles read in them
	Batches     uint64 // batches handed over to fan-out
	Bytes       uint64 // of their frames
	Marks       uint64 // watermarks written
	HintsMissed uint64 // entries met by polling that a hint should have announced

	Dropped         Drops
	DeadLetters     uint64 // poison entries put among the dead letters
	DeadLettersLost uint64 // poison entries that could not be put there
	Gaps            uint64 // entries that did not follow the one before
	Regressions     uint64 // times a failover had taken back what was read of a tile
	Resyncs         uint64 // times entries of a tile were trimmed before they were read

	StoreFailures   uint64 // calls to the log that failed
	PublishFailures uint64 // calls to the publisher that failed, in part or altogether
}

// Drops counts the entries that were not forwarded, by reason.
type Drops struct {
	Superseded, Fenced, Unvouched, Repeated uint64
}

// Total is the number of entries dropped for any reason.
func (d Drops) Total() uint64 { return d.Superseded + d.Fenced + d.Unvouched + d.Repeated }

func (d *Drops) count(r dropReason) {
	switch r {
	case superseded:
		d.Superseded++
	case fenced:
		d.Fenced++
	case unvouched:
		d.Unvouched++
	case repeated:
		d.Repeated++
	}
}
