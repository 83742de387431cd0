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
	synctest.Test(t, func(*testing.T) { err = play(newRules, intent, c, nil) })
	return err
}

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c Config) With(t Tuning) *Config {
	c.tuning = t
	return &c
}

// CrossViolation is what Cross would fail with, of the checks on the rules alone.
func CrossViolation(t *testing.T, newRules NewRules, intent Generator, census Census, cfg *Config) (err error) {
	t.Helper()
	c := cfg.withDefaults()
	t.Logf("TILEFENCE_SEED=%d", c.Seed)
	synctest.Test(t, func(*testing.T) { err = playSea(newRules, intent, census, &c, nil) })
	return err
}
