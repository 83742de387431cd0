package socket

import "time"

// BudgetWindow is the time over which a Budget counts.
const BudgetWindow = 10 * time.Second

// Budget counts what a peer sends in windows of BudgetWindow, one after another. The zero value is ready. It is not
// safe for concurrent use.
type Budget struct {
	began time.Time // of the present window
	spent int
}

// Spend counts n more, and reports whether they are within most a window.
func (b *Budget) Spend(now time.Time, n, most int) bool {
	if now.Sub(b.began) >= BudgetWindow {
		b.began, b.spent = now, 0
	}
	b.spent += n
	return b.spent <= most
}
