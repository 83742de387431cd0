package fanout

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c HinterConfig) With(t Tuning) *HinterConfig {
	c.tuning = t
	return &c
}
