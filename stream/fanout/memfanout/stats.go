package memfanout

// Stats counts what a Broker has done since it was made, with messages or with wake hints.
type Stats struct {
	Published     uint64 // handed over by publishers
	Delivered     uint64 // given to deliver
	Dropped       uint64 // lost to a subscription whose buffer was full, each subscription counted
	Subscriptions int    // subscriptions now
}
