package decision

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"

	"github.com/tilefence/tilefence/fence"
)

// File is a log that was read. It is held in memory whole.
type File struct {
	Name    string
	Servers []string // contacts, by the number in events
	Closed  bool     // the process ended in order: nothing is missing at the end
	Dropped uint64   // events that are missing elsewhere
	Events  int

	data []byte
	at   map[fence.TileID][]int // where the frames of each tile are; zero: those of no tile
}

// Is reports whether a file begins as a log does.
func Is(head []byte) bool { return bytes.HasPrefix(head, []byte(Magic)) }

// Open reads a log. The end of one that is still written, or whose process was killed, may be torn.
func Open(path string) (*File, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &File{Name: path, data: data, at: map[fence.TileID][]int{}}
	if err := f.scan(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}

func (f *File) scan() error {
	if !Is(f.data) {
		return fmt.Errorf("no log of decisions: it does not begin with %q", Magic)
	}
	for at := len(Magic); at < len(f.data); {
		frame, next := f.frame(at)
		if frame == nil {
			return nil // torn
		}
		tile, err := f.look(frame)
		if err != nil {
			return fmt.Errorf("byte %d: %w", at, err)
		}
		f.at[tile] = append(f.at[tile], at)
		f.Events++
		at = next
	}
	return nil
}

// frame is the event at an offset, and where the next one is; nil at the end.
func (f *File) frame(at int) (frame []byte, next int) {
	n, wide := binary.Uvarint(f.data[at:])
	if wide <= 0 || n > uint64(len(f.data)-at-wide) {
		return nil, len(f.data)
	}
	next = at + wide + int(n)
	return f.data[at+wide : next], next
}

// look finds an event's tile, and takes note of what is of no tile.
func (f *File) look(frame []byte) (fence.TileID, error) {
	d := decoder{b: frame}
	kind := Kind(d.byte())
	d.bytes(2)
	d.number()
	d.number()
	tile := fence.TileID(d.eight())
	if d.bad {
		return 0, errDamaged
	}
	if tile != 0 {
		return tile, nil
	}
	var e Event
	if err := e.Decode(frame); err != nil {
		return 0, err
	}
	switch kind {
	case Began:
		f.Servers = append(f.Servers, e.Contact)
	case Closed:
		f.Closed = true
	case Dropped:
		f.Dropped += e.Count
	}
	return 0, nil
}

// Tiles calls visit with each tile that the file mentions.
func (f *File) Tiles(visit func(fence.TileID)) {
	for id := range f.at {
		if id != 0 {
			visit(id)
		}
	}
}

// Each calls visit with a tile's events, as they were answered; zero: with those of no tile. The event is the next
// call's, too.
func (f *File) Each(tile fence.TileID, visit func(*Event)) error {
	var e Event
	for _, at := range f.at[tile] {
		frame, _ := f.frame(at)
		if err := e.Decode(frame); err != nil {
			return fmt.Errorf("%s: byte %d: %w", f.Name, at, err)
		}
		if e.Server >= len(f.Servers) && e.Kind != Closed && e.Kind != Dropped {
			return fmt.Errorf("%s: byte %d: %w", f.Name, at, errDamaged)
		}
		visit(&e)
	}
	return nil
}
