// Package matchtest is the contract of match.Store and match.Seats as tests. Every back end runs it:
//
//	func TestConformance(t *testing.T) { matchtest.Run(t, newBackend) }
//
// Tests use shards and pools of random names, so that back ends may share servers with other tests. Random tests print
// their seed.
package matchtest
