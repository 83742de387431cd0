// Package memmatch keeps tickets and seats in the memory of one process: for tests, for local development, and as the
// specification of what match.Store and match.Seats promise, which package redismatch does with Redis functions.
//
//	store := memmatch.New()
//	seats, err := match.NewSeatAllocator(store, "eu", 0)
//	lobby, err := match.NewLobby(store, match.Queue{Name: "ranked-eu", Max: 2})
//
// Nothing survives the process. Every method takes one lock; a claim sorts all tickets of its shard. The clock is the
// process's own.
package memmatch
