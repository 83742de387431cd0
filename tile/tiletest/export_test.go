package tiletest

import (
	"testing"
	"testing/synctest"
)

// Violation is what Run would fail with, of the checks on the rules alone.
func Violation(t *testing.T, newRules NewRules, intent Generator, cfg *Config) (err error) {
	t.Helper()
	c := cfg.withDefaults()
	t.Logf("TILEFENCE_SEED=%d", c.Seed)
	synctest.Test(t, func(*testing.T) { err = play(newRules, intent, c) })
	return err
}

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c Config) With(t Tuning) *Config {
	c.tuning = t
	return &c
}
