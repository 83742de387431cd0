package natsfanout

import "time"

// Patiently makes EnterWorld wait for answers as long as a busy machine may take for them.
func (f *Fanout) Patiently() *Fanout {
	f.world.window = 5 * time.Second
	return f
}

// Quickly makes it wait as long as is enough for those that must not come.
func (f *Fanout) Quickly() *Fanout {
	f.world.window = 20 * time.Millisecond
	return f
}

// Subject is the name of a tile's subject.
var Subject = subjectOf

// WorldSubject is where processes ask for the world.
const WorldSubject = worldSubject

// Tuning are the settings that only tests change.
type Tuning = tuning

// With is the configuration with such settings.
func (c Config) With(t Tuning) *Config {
	c.tuning = t
	return &c
}
