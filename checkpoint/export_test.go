package checkpoint

// What is counted and logged, as tests are given it.
type (
	Tuning        = tuning
	TruncatedInfo = truncatedInfo
)

// With is the configuration with settings that only tests change.
func (cfg Config) With(t Tuning) *Config {
	cfg.tuning = t
	return &cfg
}

// OnTruncated sets what is called for each truncation.
func (cfg *Config) OnTruncated(f func(TruncatedInfo)) { cfg.tuning.Truncated = f }
