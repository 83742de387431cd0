package rim_test

import (
	"context"
	"testing"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile/internal/rim"
)

// waters are tiles with 49 areas.
type waters struct {
	stream.Log
	next map[fence.TileID]fence.Entry // the batch that follows
}

func (w *waters) Read(_ context.Context, cursors []stream.Cursor) ([]stream.Chunk, error) {
	all := make([]stream.Chunk, len(cursors))
	for i, c := range cursors {
		e := w.next[c.Tile]
		all[i].Owner = fence.Owner{Tile: c.Tile, Epoch: 1, Position: e.Position, Tick: e.Tick}
		if e.Seq > c.After {
			all[i].Entries = []fence.Entry{e}
		}
	}
	return all, nil
}

func (w *waters) Snapshot(context.Context, fence.TileID) (fence.Snapshot, bool, error) {
	return fence.Snapshot{}, false, nil
}

// tick commits a batch in each tile, with three events of 60 bytes in each area.
func (w *waters) tick(b *testing.B) (bytes int) {
	b.Helper()
	for id := range w.next {
		batch := &stream.Batch{Events: make([][]byte, 0, 3*49)}
		for i := range 3 * 49 {
			batch.Events = append(batch.Events, append(make([]byte, 59), byte(1+i/3)))
		}
		batch.Divide(func(e []byte) fence.Area { return fence.Area(e[59]) })
		payload, _, err := batch.Encode()
		if err != nil {
			b.Fatal(err)
		}
		prev := w.next[id].Position
		e := fence.NewEntry(fence.Entry{Tile: id, Kind: fence.KindBatch, Payload: payload, Prev: prev,
			Tick: w.next[id].Tick + 1, Position: fence.Position{Epoch: 1, Seq: prev.Seq + 1}})
		w.next[id], bytes = e, bytes+len(e.Frame)
	}
	return bytes
}

// BenchmarkSixNeighbours is one tick of a tile with six neighbours of 49 areas, five of each in sight: first what the
// process reads beside the ticks, for one tile that looks there or for six, then what each takes on its tick.
func BenchmarkSixNeighbours(b *testing.B) {
	for name, lookers := range map[string]int{"one": 1, "six": 6} {
		b.Run(name, func(b *testing.B) {
			w := &waters{next: map[fence.TileID]fence.Entry{}}
			r := rim.New(w)
			var feeds []*rim.Feed
			for id := range fence.TileID(6) {
				w.next[id+1] = fence.Entry{}
			}
			w.tick(b)
			for range lookers {
				for id := range w.next {
					f := r.Feed(id, fence.Areas(19, 21, 45, 47, 49), time.Hour, time.Hour)
					defer f.Stop()
					feeds = append(feeds, f)
				}
			}
			for len(feeds) > 0 && feeds[len(feeds)-1].Take().At.Seq == 0 {
				r.Round()
				time.Sleep(time.Millisecond)
			}
			var read, seen, events int
			var reading, taking time.Duration
			for b.Loop() {
				b.StopTimer()
				read += w.tick(b)
				b.StartTimer()
				began := time.Now()
				r.Round()
				took := time.Now()
				for _, f := range feeds {
					for _, batch := range f.Take().Batches {
						events += len(batch.Events)
						for _, e := range batch.Events {
							seen += len(e)
						}
					}
				}
				reading, taking = reading+took.Sub(began), taking+time.Since(took)
			}
			n := float64(b.N)
			b.ReportMetric(float64(read)/n, "B-read/tick")
			b.ReportMetric(float64(seen)/n/float64(lookers), "B-seen/tick")
			b.ReportMetric(float64(events)/n/float64(lookers), "events/tick")
			b.ReportMetric(float64(reading.Microseconds())/n, "us-reading/tick")
			b.ReportMetric(float64(taking.Nanoseconds())/1000/n/float64(lookers), "us-on-the-tick")
		})
	}
}
