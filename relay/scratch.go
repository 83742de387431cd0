package relay

import (
	"sync"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/relay/relaypb"
)

// scratch is what the frames of one message are put together in, before the message is encoded, and then those of
// another: a relay with thousands of clients that watch different areas makes so many that most of the collector's work
// was for these.
type scratch struct {
	frames  []*relaypb.Frame
	used    int    // of the frames
	payload []byte // of all frames
}

var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

// frame is a frame with an entry.
func (s *scratch) frame(e *fence.Entry) *relaypb.Frame {
	if s.used == len(s.frames) {
		s.frames = append(s.frames, &relaypb.Frame{})
	}
	f := s.frames[s.used]
	s.used++
	f.Set(e)
	return f
}

// free ends the use of all frames.
func (s *scratch) free() {
	s.reset()
	scratches.Put(s)
}

func (s *scratch) reset() {
	for _, f := range s.frames[:s.used] {
		f.Payload = nil // it may be the batch's own
	}
	s.used, s.payload = 0, s.payload[:0]
}
