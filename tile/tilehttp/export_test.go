package tilehttp

// The limits of the wire.
const (
	Subprotocol = subprotocol
	MaxMessage  = maxMessage
	MaxRequest  = maxRequest
)

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c Config) With(t Tuning) *Config {
	c.tuning = t
	return &c
}

// With is the configuration with such settings.
func (c HandlerConfig) With(t Tuning) *HandlerConfig {
	c.tuning = t
	return &c
}
