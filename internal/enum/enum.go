// Package enum names the values of enumerations.
package enum

import "fmt"

// Name is the name of a value that counts from 1. One that has none is its kind and number, such as event(7).
func Name[E ~int | ~uint8](v E, kind string, names ...string) string { return In(v, kind, names, 1) }

// In is Name for a value that counts from first.
func In[E ~int | ~uint8](v E, kind string, names []string, first int) string {
	if i := int(v) - first; i >= 0 && i < len(names) {
		return names[i]
	}
	return fmt.Sprintf("%s(%d)", kind, int(v))
}
