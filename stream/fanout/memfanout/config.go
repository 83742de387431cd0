package memfanout

import "github.com/tilefence/tilefence/fence"

// Defaults of Config.
const (
	DefaultBuffer      = 256
	DefaultBufferBytes = 8 << 20
)

// Config holds the optional settings of a Broker.
type Config struct {
	// Buffer is how many messages wait in front of one slow subscription before further ones are
	// dropped. Zero means DefaultBuffer.
	Buffer int

	// BufferBytes is how many bytes of them may wait; one message is accepted whatever its size. Zero
	// means DefaultBufferBytes.
	BufferBytes int

	// Hooks are called as things happen.
	Hooks Hooks
}

// Hooks report what a Broker does. Any of them may be nil. They are called from Publish, possibly from
// several goroutines at once, and must not block.
type Hooks struct {
	// Dropped is called for each message lost to one subscription whose buffer was full.
	Dropped func(DropInfo)
}

// DropInfo is one message that one subscription lost.
type DropInfo struct {
	Tile  fence.TileID
	Bytes int // size of the message
}

// Stats counts what a Broker has done since it was made.
type Stats struct {
	Published     uint64 // messages handed over by publishers
	Delivered     uint64 // calls of deliver begun
	Dropped       uint64 // messages lost to a subscription whose buffer was full, each subscription counted
	Subscriptions int    // subscriptions now
}

func (c *Config) withDefaults() (Config, error) {
	var out Config
	if c != nil {
		out = *c
	}
	if out.Buffer < 0 {
		return out, &fence.ArgumentError{Field: "Buffer", Value: out.Buffer,
			Want: "a number of messages, or zero for the default"}
	}
	if out.BufferBytes < 0 {
		return out, &fence.ArgumentError{Field: "BufferBytes", Value: out.BufferBytes,
			Want: "a number of bytes, or zero for the default"}
	}
	if out.Buffer == 0 {
		out.Buffer = DefaultBuffer
	}
	if out.BufferBytes == 0 {
		out.BufferBytes = DefaultBufferBytes
	}
	if out.Hooks.Dropped == nil {
		out.Hooks.Dropped = func(DropInfo) {}
	}
	return out, nil
}
