package relay

import (
	"sync"
	"time"
)

// share is what an actor takes of the relay, over all its connections. The strangers of one address have one, too,
// which is as large as that of as many connections as an actor may have. A stranger of an unknown address has one
// alone.
type share struct {
	cfg   *Config
	times int         // of what one client may
	syncs *syncBudget // bytes of Syncs

	mu    sync.Mutex
	opens *syncBudget // tiles that the relay did not watch before; nil: none so far

	// Guarded by the mutex of the shares.
	clients int       // connections
	left    time.Time // when the last one ended
}

// addressTimes is what the strangers of an address may take, in shares of one client.
const addressTimes = 16

// opensBurst is how many times MaxTilesPerClient a client may open tiles at once that the relay does not watch. They
// cost a read of the store each. A syncBurst-th part of it is the rate at which there may be more, in tiles a second.
const opensBurst = 4

func newShare(cfg *Config, times int) *share {
	return &share{cfg: cfg, times: times, syncs: newSyncBudget(times * cfg.SyncRate)}
}

// opensWait is how long the next tile that the relay does not watch has to wait; zero: it is counted.
func (s *share) opensWait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.opens == nil {
		s.opens = newSyncBudget(s.times * max(1, s.cfg.MaxTilesPerClient*opensBurst/syncBurst))
	}
	wait := s.opens.wait(time.Now())
	if wait == 0 {
		s.opens.spend(1)
	}
	return wait
}

// shares are the shares of actors and addresses that are connected, and of those that were a moment ago: an actor that
// leaves and comes again has the one that it had.
type shares struct {
	cfg *Config

	mu    sync.Mutex
	all   map[string]*share
	swept time.Time
}

// enter counts a connection of an actor or address in.
func (a *shares) enter(holder string, stranger bool) *share {
	times := 1
	if stranger {
		times = addressTimes
	}
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if now.Sub(a.swept) >= syncMemory {
		a.swept = now
		for name, s := range a.all {
			if s.clients == 0 && now.Sub(s.left) >= syncMemory {
				delete(a.all, name)
			}
		}
	}
	s := a.all[holder]
	if s == nil {
		s = newShare(a.cfg, times)
		a.all[holder] = s
	}
	s.clients++
	return s
}

// leave counts it out.
func (a *shares) leave(s *share) {
	a.mu.Lock()
	defer a.mu.Unlock()
	s.clients--
	s.left = time.Now()
}
