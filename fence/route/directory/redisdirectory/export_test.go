package redisdirectory

// Key is the key of a player's record, for tests that look at it.
var Key = recordKey
