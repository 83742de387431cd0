// Package admissiontest is the contract of admission.Store as tests. A back end passes it, embedded and
// real alike:
//
//	func TestStore(t *testing.T) {
//		admissiontest.Run(t, func(t *testing.T) admission.Store { return openMine(t) })
//	}
//
// The suite uses names of its own, so the stores it gets may share a database that holds other
// data. It asks for a store once a test and does not close it.
//
// Two of its tests are random: they print their seed, and the environment variable TILEFENCE_SEED repeats a run's
// calls (how those of several goroutines interleave stays the scheduler's choice).
package admissiontest
