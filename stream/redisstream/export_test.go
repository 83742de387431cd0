package redisstream

// What the fuzzers feed.
var (
	ParseEntry    = parseEntry
	ParseSnapshot = parseSnapshot
)
