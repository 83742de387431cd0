package route

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c RouterConfig) With(t Tuning) *RouterConfig {
	c.tuning = t
	return &c
}
