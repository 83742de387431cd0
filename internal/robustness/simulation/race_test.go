//go:build race

package simulation

func init() { raced = true }
