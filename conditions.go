package tilefence

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// unsafeSettings is what Health says of back ends whose servers lack what they need.
const unsafeSettings = "servers of a back end would lose what they are given, or refuse it"

// conditions are what the servers of a process's back ends lack. Nothing waits for it and nothing stops by it.
type conditions struct {
	checked []fence.Checker
	found   atomic.Pointer[unmet]
}

// unmet is what was wrong at the last look.
type unmet struct {
	texts []string
	since time.Time
}

// of adds those of the back ends that can be checked.
func (c *conditions) of(backends ...any) {
	for _, b := range backends {
		if checked, ok := b.(fence.Checker); ok {
			c.checked = append(c.checked, checked)
		}
	}
}

// more adds back ends of the game.
func (c *conditions) more(backends []fence.Checker) { c.checked = append(c.checked, backends...) }

// watch looks every second until ctx ends.
func (c *conditions) watch(ctx context.Context) error {
	if len(c.checked) == 0 {
		<-ctx.Done()
		return nil
	}
	for wait.For(ctx, lookEvery) {
		now := unmet{since: time.Now()}
		for _, b := range c.checked {
			for _, err := range b.Check(ctx) {
				now.texts = append(now.texts, err.Error())
			}
		}
		if before := c.found.Load(); before != nil && len(before.texts) > 0 {
			now.since = before.since
		}
		c.found.Store(&now)
	}
	return nil
}

// conditionsShown is of how many servers a problem gives the text.
const conditionsShown = 8

// add adds what was wrong at the last look.
func (c *conditions) add(all *problems) {
	found := c.found.Load()
	if found == nil || len(found.texts) == 0 {
		return
	}
	all.add("settings", unsafeSettings, 0, max(time.Since(found.since), 1))
	text := strings.Join(found.texts[:min(len(found.texts), conditionsShown)], "; ")
	if n := len(found.texts) - conditionsShown; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	all.detail(unsafeSettings, text)
}
