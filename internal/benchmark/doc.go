// Package benchmark holds the benchmarks that span packages, and the command that turns all benchmarks
// of the module into docs/benchmarks.md.
package benchmark
