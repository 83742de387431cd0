package bridge

// What is counted and logged, as tests are given it.
type (
	Tuning         = tuning
	DropReason     = dropReason
	DropInfo       = dropInfo
	DeadLetterInfo = deadLetterInfo
	GapInfo        = gapInfo
	RegressInfo    = regressInfo
	LostInfo       = lostInfo
)

// The reasons to drop an entry.
const (
	Superseded = superseded
	Fenced     = fenced
	Unvouched  = unvouched
	Repeated   = repeated
)

// With is the configuration with settings that only tests change.
func (c Config) With(t Tuning) *Config {
	c.tuning = t
	return &c
}
