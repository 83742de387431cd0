package health

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// unsafeSettings is what Health says of back ends whose servers lack what they need.
const unsafeSettings = "servers of a back end would lose what they are given, or refuse it"

// Conditions are what the servers of a process's back ends lack. Nothing waits for it and nothing stops by it.
type Conditions struct {
	checked []fence.Checker

	mu    sync.Mutex
	found map[int]unmet // by index of checked: what was wrong at the last look
}

// unmet is what is wrong with the servers of a back end.
type unmet struct {
	texts []string
	since time.Time
}

// Of adds those of the back ends that can be checked.
func (c *Conditions) Of(backends ...any) {
	for _, b := range backends {
		if checked, ok := b.(fence.Checker); ok {
			c.checked = append(c.checked, checked)
		}
	}
}

// More adds back ends of the game.
func (c *Conditions) More(backends []fence.Checker) { c.checked = append(c.checked, backends...) }

// Watch looks every second until ctx ends, at each back end for itself: one that hangs leaves the others watched.
func (c *Conditions) Watch(ctx context.Context) error {
	var watched sync.WaitGroup
	for i, b := range c.checked {
		watched.Go(func() {
			for wait.For(ctx, lookEvery) {
				c.looked(i, b.Check(ctx))
			}
		})
	}
	watched.Wait()
	<-ctx.Done()
	return nil
}

// looked notes what is wrong with the servers of a back end.
func (c *Conditions) looked(i int, wrong []error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, was := c.found[i]
	delete(c.found, i)
	if len(wrong) == 0 {
		return
	}
	now := unmet{since: time.Now()}
	if was {
		now.since = before.since
	}
	for _, err := range wrong {
		now.texts = append(now.texts, err.Error())
	}
	if c.found == nil {
		c.found = map[int]unmet{}
	}
	c.found[i] = now
}

// conditionsShown is of how many servers a problem gives the text.
const conditionsShown = 8

// Add adds what was wrong at the last look.
func (c *Conditions) Add(all *Problems) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.found) == 0 {
		return
	}
	var texts []string
	since := time.Now()
	for i := range c.checked {
		if found, is := c.found[i]; is {
			texts = append(texts, found.texts...)
			if found.since.Before(since) {
				since = found.since
			}
		}
	}
	all.Add("settings", unsafeSettings, 0, max(time.Since(since), 1))
	text := strings.Join(texts[:min(len(texts), conditionsShown)], "; ")
	if n := len(texts) - conditionsShown; n > 0 {
		text += fmt.Sprintf("; and %d more", n)
	}
	all.Detail(unsafeSettings, text)
}
