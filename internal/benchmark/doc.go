// Package benchmark holds the benchmarks that span packages, and the command that turns all benchmarks
// of the module into docs/benchmarks.md.
//
// Variables of the environment change some of them:
//
//	TILEFENCE_BENCH_TILES       tiles of BenchmarkHost; 10,000
//	TILEFENCE_BENCH_FAULT       length of a fault of BenchmarkIsolation, and with it of the windows of
//	                            BenchmarkFullTile and BenchmarkColdPath; 30s
//	TILEFENCE_BENCH_HINTS       off: owner and bridge do without wake hints in BenchmarkIsolation
//	TILEFENCE_BENCH_ROUNDS      partitions of BenchmarkPartitionRedirect; 100
//	TILEFENCE_BENCH_KILLS       kills of each row of BenchmarkCrossingKilled; 36
//	TILEFENCE_BENCH_VIEW_READS  views that BenchmarkViewAudit reads at most; 10,000,000
//	TILEFENCE_BENCH_VIEW_LENGTH for how long it reads at most; 1m
//	TILEFENCE_BENCH_PIN         off: do not part the processors between the commit path and the rest
//
// # Loads
//
//	players         ordinary clients that play the battle; their views and accounts are compared at the end
//	pilots          planners that fly some of the players' ships
//	census          between a lobby and its players: the tickets, counted
//	crowd           WebSockets that cost next to nothing, for benchmarks of servers on the same machine
//	cmd/swarm       thousands of players of the battle on crowd's sockets, in one loop
package benchmark
