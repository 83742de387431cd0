// Package history records the calls of the fence's clients with their answers, and what observers saw, so
// that package check can check whether the protocol kept its promises.
//
// A history is a set of records from any number of processes. Each process appends its own to a file, as
// JSON lines:
//
//	file, err := history.Create(path)
//	recorder := history.NewRecorder("host-a-1", file, nil)
//	authority := recorder.Authority("10.0.0.7:7000#1", realAuthority)
//	store := recorder.Store("10.0.0.7:7000#1", realStore)
//
// A check reads all files and joins them:
//
//	records, err := history.ReadFiles(paths...)
//	h := history.Join(records)
//
// # Clients
//
// A client is a party that keeps the protocol's rules by itself: one run of one tile.TileProcessor, one gateway,
// one watcher. Give every run a name of its own, also when it has the same contact as its predecessor: what
// one run must not do any more, its successor under the same address may.
//
// # Operations
//
// An operation is a call record when it begins and a return record when it ends. A return whose outcome is
// Unknown, and a missing return (the process was killed), leave the operation open for ever: it may take
// effect at any later time, or never.
//
// # Time
//
// Times are nanoseconds of the machine's monotonic clock, which all processes of one machine share. A
// recorder gives every record a later time than the one before, so records of one process are in order.
//
// # Failures
//
// A record is one write to a file opened for appending, so a process killed with SIGKILL leaves everything
// it recorded but, at most, the end of its last line. Reading tolerates that and nothing else. A recorder
// that cannot write keeps the first error (Err) and goes on: a test must look at it.
//
// A Recorder and what it makes are safe for concurrent use.
package history
