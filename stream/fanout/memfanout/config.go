package memfanout

// Config holds the optional settings of a Broker.
type Config struct {
	// Buffer is how many messages wait in front of one slow subscription before further ones are
	// dropped. Zero means fanout.DefaultBuffer.
	Buffer int

	// BufferBytes is how many bytes of them may wait; one message is accepted whatever its size. Zero
	// means fanout.DefaultBufferBytes.
	BufferBytes int
}

// Stats counts what a Broker has done since it was made, with messages or with wake hints.
type Stats struct {
	Published     uint64 // handed over by publishers
	Delivered     uint64 // given to deliver
	Dropped       uint64 // lost to a subscription whose buffer was full, each subscription counted
	Subscriptions int    // subscriptions now
}
