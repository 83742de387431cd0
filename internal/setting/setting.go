// Package setting fills in and checks the optional settings of the module's Config types, which all work alike: nil is
// valid, a zero field means its default, and a *fence.ArgumentError names the first field that is out of range.
package setting

import (
	"cmp"
	"fmt"
	"time"

	"github.com/tilefence/tilefence/fence"
)

// Of is a copy of a configuration, which may be nil.
func Of[T any](c *T) (out T) {
	if c != nil {
		out = *c
	}
	return out
}

// Check checks settings one after the other.
type Check struct{ Err error } // about the first field that is out of range

// Refuse complains of a field if it is bad.
func (c *Check) Refuse(bad bool, field string, value any, want string) {
	if bad && c.Err == nil {
		c.Err = &fence.ArgumentError{Field: field, Value: value, Want: want}
	}
}

// Duration gives a duration its default, and refuses a negative one.
func (c *Check) Duration(field string, d *time.Duration, byDefault time.Duration) {
	c.Refuse(*d < 0, field, *d, "a duration, or zero for the default")
	*d = cmp.Or(*d, byDefault)
}

// From is Duration for one that must not be below another setting, and is not by default.
func (c *Check) From(least time.Duration, field string, d *time.Duration, byDefault time.Duration) {
	*d = cmp.Or(*d, max(byDefault, least))
	c.Refuse(*d < least, field, *d, "at least "+least.String()+", or zero for the default")
}

// Least gives a setting its default, and refuses one below least.
func Least[T int | int64 | time.Duration](c *Check, least T, field string, v *T, byDefault T) {
	*v = cmp.Or(*v, byDefault)
	c.Refuse(*v < least, field, *v, fmt.Sprint("at least ", least, ", or zero for the default"))
}

// Number gives a number its default, and refuses a negative one.
func (c *Check) Number(field string, n *int, byDefault int) {
	c.Refuse(*n < 0, field, *n, "a positive number, or zero for the default")
	*n = cmp.Or(*n, byDefault)
}
