package plan

// GiveAtOnce makes the biller give its sink n events at once, at most.
func (b *Biller) GiveAtOnce(n int) { b.batch = n }
