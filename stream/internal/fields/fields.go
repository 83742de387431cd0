// Package fields reads the named texts of a stored entry or hash.
package fields

import (
	"fmt"

	"github.com/tilefence/tilefence/fence"
)

// Reader reads named texts as the store holds them. Err is the first complaint; what is read after it counts
// for nothing.
type Reader struct {
	Field func(name string) (text string, found bool)
	Err   error
}

// Text reads a field as it is.
func (f *Reader) Text(name string) string {
	text, found := f.Field(name)
	if !found && f.Err == nil {
		f.Err = fmt.Errorf("field %s is missing", name)
	}
	return text
}

func (f *Reader) fail(name string, err error) {
	if err != nil && f.Err == nil {
		f.Err = fmt.Errorf("field %s: %w", name, err)
	}
}

// Number reads a decimal number up to fence.MaxNumber.
func (f *Reader) Number(name string) uint64 {
	n, err := fence.ParseNumber(f.Text(name))
	f.fail(name, err)
	return n
}

// Chain reads 16 hexadecimal digits.
func (f *Reader) Chain(name string) fence.Chain {
	c, err := fence.ParseChain(f.Text(name))
	f.fail(name, err)
	return c
}
