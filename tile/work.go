package tile

import "time"

// workWeight is over how many ticks Status.Work is weighted.
const workWeight = 20

// work is what an owner's ticks take, without waiting for the store.
type work struct {
	spent time.Duration // since the last tick that was counted
	mean  time.Duration
}

// since adds the time since began.
func (w *work) since(began time.Time) { w.spent += time.Since(began) }

// tick counts what was spent as a tick's.
func (w *work) tick() time.Duration {
	w.mean += (w.spent - w.mean) / workWeight
	w.spent = 0
	return w.mean
}
