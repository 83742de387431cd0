package socket

import (
	"bytes"
	"compress/flate"
	"io"
	"sync"
)

// deflateFrom is the least payload that is compressed. Below it there is little to win: see BenchmarkDeflate.
const deflateFrom = 1 << 10

// flateTail ends a compressed message, and is left out on the wire.
var flateTail = []byte{0, 0, 0xff, 0xff}

var (
	writers = sync.Pool{New: func() any {
		w, _ := flate.NewWriter(io.Discard, flate.BestSpeed) // the level is valid, so there is no error
		return w
	}}
	readers = sync.Pool{New: func() any { return flate.NewReader(nil) }}
)

// deflate compresses the payload of a message, for which dst has room kept free; ok is false if that is not worth it.
func deflate(dst, payload []byte) (out []byte, ok bool) {
	if len(payload) < deflateFrom {
		return nil, false
	}
	buf := bytes.NewBuffer(dst)
	w := writers.Get().(*flate.Writer)
	defer writers.Put(w)
	w.Reset(buf)
	if _, err := w.Write(payload); err != nil {
		return nil, false
	}
	if err := w.Flush(); err != nil {
		return nil, false
	}
	out = bytes.TrimSuffix(buf.Bytes(), flateTail)
	return out, len(out)-len(dst) < len(payload)*9/10
}

// inflate is the message of compressed frames, of at most limit bytes.
func inflate(payload []byte, limit int) ([]byte, error) {
	r := readers.Get().(io.ReadCloser)
	defer readers.Put(r)
	end := append(bytes.Clone(flateTail), 1, 0, 0, 0xff, 0xff) // and an empty last block, for the reader to end at
	from := io.MultiReader(bytes.NewReader(payload), bytes.NewReader(end))
	if err := r.(flate.Resetter).Reset(from, nil); err != nil {
		return nil, err
	}
	out, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, &FrameError{CloseBadData, "compressed data that cannot be read"}
	case len(out) > limit:
		return nil, tooBig(limit)
	}
	return out, nil
}
