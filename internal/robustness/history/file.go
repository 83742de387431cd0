package history

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
)

// File is a sink on disk. Every record is one write to a file opened for appending.
type File struct{ f *os.File }

// Create makes the file, which must not exist: each process has its own.
func Create(path string) (*File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	return &File{f: f}, nil
}

// Append implements Sink.
func (f *File) Append(r Record) error {
	line, err := r.MarshalLine()
	if err != nil {
		return err
	}
	_, err = f.f.Write(line)
	return err
}

// Close closes the file.
func (f *File) Close() error { return f.f.Close() }

// Only is a sink that keeps records of some kinds, and drops all others.
type Only struct {
	Sink
	Kinds []Kind
}

// Append implements Sink.
func (o Only) Append(r Record) error {
	if !slices.Contains(o.Kinds, r.Kind) {
		return nil
	}
	return o.Sink.Append(r)
}

// Memory is a sink in memory.
type Memory struct {
	mu      sync.Mutex
	records []Record
}

// Append implements Sink.
func (m *Memory) Append(r Record) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
	return nil
}

// Records returns what was appended so far.
func (m *Memory) Records() []Record {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.records)
}

// Read reads records until the end of r. A last line without a newline is what a killed process leaves; it is
// dropped. Any other line that is no record is an error that names it.
func Read(r io.Reader) ([]Record, error) {
	lines := bufio.NewReaderSize(r, 64<<10)
	var records []Record
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		switch {
		case errors.Is(err, io.EOF):
			return records, nil
		case err != nil:
			return records, err
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.DisallowUnknownFields()
		var rec Record
		if err := decoder.Decode(&rec); err != nil {
			return records, fmt.Errorf("line %d: %w", n, err)
		}
		records = append(records, rec)
	}
}

// ReadFiles reads the files of several processes and returns their records in order of time.
func ReadFiles(paths ...string) ([]Record, error) {
	var all []Record
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		records, err := Read(f)
		_ = f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, records...)
	}
	slices.SortStableFunc(all, func(a, b Record) int { return cmp.Compare(a.At, b.At) })
	return all, nil
}
