//go:build race

package spec

func init() { raced = true }
