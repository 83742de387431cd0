// Package decision keeps what the servers of a process decide and are answered, in a file that tilectl verify replays:
// claims, installs, commits, rebases, snapshots, refusals, confirmations, ends of owners, spends, refunds, and where
// matches play.
//
// Create makes a Log; its Server decorates the authority and the store of a tile server. Open reads a file.
//
// # Cost
//
// An event is put into a buffer by the goroutine that decides, in some hundred nanoseconds, and written by another. The
// buffer is bounded: when the disk does not follow, events are dropped and counted, and the file says how many are
// missing and where. No decision waits for the file.
//
// # Format
//
// The file begins with the line "tilefence decisions 1". Then come frames: the length of an event as a uvarint, and the
// event; Event says what is in it. The last event of a process that ended by itself is of kind Closed. A process that
// was killed leaves what was written up to a fifth of a second before; the last frame may be torn.
//
// # Time
//
// Times are of the machine's clock when the log was created, and go on from there without its steps. Clocks of
// several machines differ; a reader has to allow for that.
//
// A Log and what it makes are safe for concurrent use. A nil *Log, and a nil *Server, decorate nothing and keep
// nothing.
package decision
