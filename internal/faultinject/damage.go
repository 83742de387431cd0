package faultinject

import (
	"context"
	"errors"
	"slices"
)

// Damage is what a fault has hit, and what repairs it. It is not safe for concurrent use.
type Damage struct {
	Targets []string // in the order in which they were hit, each once
	repairs []func(context.Context) error
}

// Hit notes a target and its repair, before the target is broken: a fault that fails halfway is repaired too. A nil
// repair means that the system repairs it by itself.
func (d *Damage) Hit(target string, repair func(context.Context) error) {
	if !slices.Contains(d.Targets, target) {
		d.Targets = append(d.Targets, target)
	}
	if repair != nil {
		d.repairs = append(d.repairs, repair)
	}
}

// Repair makes all repairs in the order of Hit, also after one that fails, and returns their errors.
func (d *Damage) Repair(ctx context.Context) error {
	var errs []error
	for _, repair := range d.repairs {
		errs = append(errs, repair(ctx))
	}
	return errors.Join(errs...)
}
