package admission

// Tuning are the settings that only tests change.
type Tuning = tuning

var FingerprintOf = fingerprintOf

// With is the configuration with such settings.
func (c GatewayConfig) With(t Tuning) *GatewayConfig {
	c.tuning = t
	return &c
}
