package memfanout

// Sized returns a Broker that keeps so many messages, of so many bytes, for one slow subscription.
func Sized(messages, bytes int) (*Broker, error) { return sized(messages, bytes) }
