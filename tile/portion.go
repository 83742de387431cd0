package tile

import "time"

// portion is how many intents a tick asks the rules about. A tick that cannot take all that wait begins with what
// fitted into the last one, so what it computes in vain stays in proportion to what it commits, however many wait.
//
// Two things bound it. Events must fit into one batch: a portion that does not fit is cut by what it was too large,
// and grows by an eighth some ticks later. And the tick must be over in time: portion learns what a tick costs by
// itself and what an intent adds (least squares over the last ticks, older ones count less), and leaves to intents what
// is left of the budget, a quarter of it at least.
type portion struct {
	most    int // intents, at the next tick; 0: firstPortion
	holds   int // ticks until it may grow again
	cramped bool

	base, each float64 // seconds: of a tick, and of each intent in it

	// Decayed sums over ticks: their number, intents, seconds, and products.
	n, x, y, xx, xy float64
}

const (
	firstPortion = 256
	leastPortion = 16 // for reasons of time: a game whose ticks are slow by themselves still hears its players
	holdPortion  = 8  // ticks after one that did not fit
	forgetTick   = 0.8
)

func (p *portion) next() int {
	if p.most == 0 {
		return firstPortion
	}
	return p.most
}

// reduced is the portion to try after one of n did not fit into a batch. bytes is what it took of so many that there
// are, both zero if that is not known.
func (p *portion) reduced(n, bytes, limit int) int {
	p.cramped, p.holds = true, holdPortion
	fits := n / 2
	if bytes > limit && limit > 0 {
		fits = max(fits, int(float64(n)*float64(limit)/float64(bytes)*15/16))
	}
	p.most = max(1, min(fits, n-1))
	return p.most
}

// fitted learns from a tick whose n intents fitted, and which took a time of its budget.
func (p *portion) fitted(n int, took, budget time.Duration) {
	p.learn(float64(n), took.Seconds())
	p.holds = max(0, p.holds-1)
	if n > 0 && n >= p.next() && p.holds == 0 {
		if p.cramped {
			p.most = n + 1 + n/8
		} else {
			p.most = 2 * n
		}
	}
	if p.each > 0 {
		room := max(budget.Seconds()-p.base, budget.Seconds()/4)
		p.most = min(p.next(), max(leastPortion, int(room/p.each)))
	}
}

// learn fits base and each to the last ticks. Ticks of about the same number of intents do not say which of the two
// it is: then both are scaled to what was measured.
func (p *portion) learn(n, seconds float64) {
	const k = forgetTick
	p.n, p.x, p.y = k*p.n+1, k*p.x+n, k*p.y+seconds
	p.xx, p.xy = k*p.xx+n*n, k*p.xy+n*seconds
	meanX, meanY := p.x/p.n, p.y/p.n
	variance := p.xx/p.n - meanX*meanX
	if variance*256 > meanX*meanX {
		p.each = max(0, (p.xy/p.n-meanX*meanY)/variance)
		p.base = max(0, meanY-p.each*meanX)
		return
	}
	switch expected := p.base + p.each*n; {
	case n == 0:
		p.base = seconds
	case expected == 0:
		p.each = seconds / n
	case seconds > 1.5*expected || seconds < expected/1.5:
		p.base, p.each = p.base*seconds/expected, p.each*seconds/expected
	}
}
