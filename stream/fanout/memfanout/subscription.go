package memfanout

import "sync/atomic"

// subscription is the bounded buffer in front of one deliver function.
type subscription[M any] struct {
	queue chan message[M]
	limit int64        // bytes that may wait
	bytes atomic.Int64 // bytes that wait

	quit chan struct{} // closed by stop
	done chan struct{} // closed when deliver will not be called again
}

type message[M any] struct {
	data M
	size int64
}

func newSubscription[M any](cfg *Config) *subscription[M] {
	return &subscription[M]{
		queue: make(chan message[M], cfg.Buffer),
		limit: int64(cfg.BufferBytes),
		quit:  make(chan struct{}),
		done:  make(chan struct{}),
	}
}

// put buffers data, and is false if there is no room for it. It never waits.
func (s *subscription[M]) put(data M, size int) bool {
	n := int64(size)
	if now := s.bytes.Add(n); now > s.limit && now > n {
		s.bytes.Add(-n)
		return false
	}
	select {
	case s.queue <- message[M]{data, n}:
		return true
	default:
		s.bytes.Add(-n)
		return false
	}
}

func (s *subscription[M]) run(deliver func(M)) {
	defer close(s.done)
	for {
		select {
		case <-s.quit:
			return
		case m := <-s.queue:
			select {
			case <-s.quit: // both were ready, and select chose at random
				return
			default:
			}
			s.bytes.Add(-m.size)
			deliver(m.data)
		}
	}
}
