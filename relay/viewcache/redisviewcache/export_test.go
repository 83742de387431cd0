package redisviewcache

import (
	"strings"
	"time"
)

// Mutate puts an error into the library of this process, which then has another name than the real one.
func Mutate(edits ...string) (changed bool) {
	text := strings.NewReplacer(edits...).Replace(source)
	library = build(text)
	return text != source
}

// Linger sets for how long a group stays subscribed that nobody waits for. It comes before any use of the store.
func (s *Store) Linger(d time.Duration) { s.heard.linger = d }
