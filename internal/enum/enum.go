// Package enum names the values of enumerations, which begin with 1.
package enum

import "fmt"

// Name is the name of a value. One that has none is its kind and number, such as event(7).
func Name[E ~int | ~uint8](v E, kind string, names ...string) string {
	if v < 1 || int(v) > len(names) {
		return fmt.Sprintf("%s(%d)", kind, int(v))
	}
	return names[v-1]
}
