package figures

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
)

// Obey is how a program that starts others reads their figures: each line "cut" on in is answered on out by what cut
// returns, a Set in JSON. It returns nil at the end of in, and an error for any other line.
func Obey(in io.Reader, out io.Writer, cut func() (Set, error)) error {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if lines.Text() != "cut" {
			return fmt.Errorf("there is no order %q, only cut", lines.Text())
		}
		set, err := cut()
		if err == nil {
			err = json.NewEncoder(out).Encode(set)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}
