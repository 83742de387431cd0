// Package peers holds a benchmark of the relay beside other servers of WebSockets that run the same load in the same
// run. It is a module of its own, so that the main module does not depend on them.
//
//	go test -bench . -benchtime 1x
//
// What is compared is one message of 600 bytes, twice a second, to every client of one channel. The servers differ in
// what they promise: the relay and centrifuge let a client recover what it missed, in order; gws, and gorilla/websocket
// as its chat example uses it, hold connections and nothing else.
//
// TILEFENCE_BENCH_CLIENTS is how many clients there are; 9,500. Server and clients need a file descriptor for each.
package peers
