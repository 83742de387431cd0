package memfanout

import "github.com/tilefence/tilefence/stream/fanout"

// Config holds the optional settings of a Broker.
type Config struct {
	// Buffer is how many messages wait in front of one slow subscription before further ones are
	// dropped. Zero means fanout.DefaultBuffer.
	Buffer int

	// BufferBytes is how many bytes of them may wait; one message is accepted whatever its size. Zero
	// means fanout.DefaultBufferBytes.
	BufferBytes int

	// Hooks are called as things happen.
	Hooks Hooks
}

// Hooks report what a Broker does. Any of them may be nil. They are called from Publish, possibly from
// several goroutines at once, and must not block.
type Hooks struct {
	// Dropped is called for each message lost to one subscription whose buffer was full.
	Dropped func(fanout.DropInfo)
}

// Stats counts what a Broker has done since it was made, with messages or with wake hints.
type Stats struct {
	Published     uint64 // handed over by publishers
	Delivered     uint64 // given to deliver
	Dropped       uint64 // lost to a subscription whose buffer was full, each subscription counted
	Subscriptions int    // subscriptions now
}
