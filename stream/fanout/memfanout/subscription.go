package memfanout

import "sync/atomic"

// subscription is the bounded buffer in front of one deliver function.
type subscription struct {
	queue chan []byte
	limit int64        // bytes that may wait
	bytes atomic.Int64 // bytes that wait

	quit chan struct{} // closed by stop
	done chan struct{} // closed when deliver will not be called again
}

func newSubscription(cfg *Config) *subscription {
	return &subscription{
		queue: make(chan []byte, cfg.Buffer),
		limit: int64(cfg.BufferBytes),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
}

// put buffers data, and is false if there is no room for it. It never waits.
func (s *subscription) put(data []byte) bool {
	n := int64(len(data))
	if now := s.bytes.Add(n); now > s.limit && now > n {
		s.bytes.Add(-n)
		return false
	}
	select {
	case s.queue <- data:
		return true
	default:
		s.bytes.Add(-n)
		return false
	}
}

func (s *subscription) run(deliver func([]byte)) {
	defer close(s.done)
	for {
		select {
		case <-s.quit:
			return
		case data := <-s.queue:
			select {
			case <-s.quit: // both were ready, and select chose at random
				return
			default:
			}
			s.bytes.Add(-int64(len(data)))
			deliver(data)
		}
	}
}
