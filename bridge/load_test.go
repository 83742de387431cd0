package bridge_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/redisfence"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/fanout"
)

// envProducer makes this test binary a producer: it names a file with a production as JSON. The owners of the tiles are
// a process of their own so that the figures of a bridge are those of the bridge.
const envProducer = "TILEFENCE_BRIDGE_PRODUCER"

// production says what a producer commits.
type production struct {
	Redis   []string
	Tiles   []fence.TileID
	Payload int           // bytes
	Every   time.Duration // each tile commits as often, at its own phase; zero: the next at once
	Workers int           // with Every zero: how many tiles at a time
}

// receipt is what a producer reports of each commit, on its standard output: 20 bytes.
type receipt struct {
	tile    uint32 // index
	seq     uint64
	replied int64 // when the commit was answered, ns since 1970
}

// produce commits until standard input ends.
func produce(file string) error {
	config, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var p production
	if err := json.Unmarshal(config, &p); err != nil {
		return err
	}
	client := redis.NewClusterClient(redisfence.Options(p.Redis...))
	defer client.Close()
	store, err := redisfence.New(client, &redisfence.Config{Persistence: redisfence.Volatile})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	out := &reporter{w: bufio.NewWriterSize(os.Stdout, 1<<20)}
	payload, _, err := (&stream.Batch{Events: [][]byte{make([]byte, p.Payload)}}).Encode()
	if err != nil {
		return err
	}
	commit := func(tile int, head *fence.Position) error {
		r, err := store.Commit(ctx, fence.Commit{Tile: p.Tiles[tile], Epoch: 1, Contact: "bench", Prev: *head,
			Tick: fence.Tick(head.Seq + 1), Payload: payload, Install: head.Seq == 0})
		if err == nil {
			*head = r.Position
			out.add(receipt{uint32(tile), uint64(r.Position.Seq), time.Now().UnixNano()})
		}
		return err
	}
	go out.flush(ctx)
	var wg sync.WaitGroup
	if p.Every > 0 {
		for i := range p.Tiles {
			wg.Go(func() {
				var head fence.Position
				next := time.Now().Add(p.Every * time.Duration(i) / time.Duration(len(p.Tiles)))
				for ctx.Err() == nil {
					time.Sleep(time.Until(next))
					next = next.Add(p.Every)
					_ = commit(i, &head)
				}
			})
		}
	} else {
		for w := range p.Workers {
			wg.Go(func() {
				heads := make([]fence.Position, len(p.Tiles))
				for i := w; ctx.Err() == nil; {
					_ = commit(i, &heads[i])
					if i += p.Workers; i >= len(p.Tiles) {
						i = w
					}
				}
			})
		}
	}
	wg.Wait()
	return nil
}

// reporter writes receipts, each at most a millisecond late.
type reporter struct {
	mu sync.Mutex
	w  *bufio.Writer
}

func (r *reporter) add(c receipt) {
	var b [20]byte
	binary.BigEndian.PutUint32(b[:], c.tile)
	binary.BigEndian.PutUint64(b[4:], c.seq)
	binary.BigEndian.PutUint64(b[12:], uint64(c.replied))
	r.mu.Lock()
	_, _ = r.w.Write(b[:])
	r.mu.Unlock()
}

func (r *reporter) flush(ctx context.Context) {
	for ctx.Err() == nil {
		time.Sleep(time.Millisecond)
		r.mu.Lock()
		_ = r.w.Flush()
		r.mu.Unlock()
	}
}

// producer is a running producer.
type producer struct {
	cmd       *exec.Cmd
	input     io.Closer
	committed atomic.Int64
	ended     chan struct{}
}

// startProducer starts one. It hands what it commits to took, in parts of a millisecond.
func startProducer(t testing.TB, p production, took func([]receipt)) *producer {
	config, err := json.Marshal(p)
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "production")
	require.NoError(t, os.WriteFile(file, config, 0o600))
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envProducer+"="+file)
	cmd.Stderr = os.Stderr
	devstack.EndTogether(cmd)
	input, err := cmd.StdinPipe()
	require.NoError(t, err)
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	pr := &producer{cmd: cmd, input: input, ended: make(chan struct{})}
	go func() {
		defer close(pr.ended)
		buffer := make([]byte, 64<<10)
		n := 0
		for {
			m, err := output.Read(buffer[n:])
			n += m
			var part []receipt
			for ; n >= 20; n -= 20 {
				b := buffer[20*len(part):]
				part = append(part, receipt{binary.BigEndian.Uint32(b), binary.BigEndian.Uint64(b[4:]),
					int64(binary.BigEndian.Uint64(b[12:]))})
			}
			copy(buffer, buffer[20*len(part):20*len(part)+n])
			pr.committed.Add(int64(len(part)))
			if took != nil {
				took(part)
			}
			if err != nil {
				return
			}
		}
	}()
	return pr
}

// stop ends it, and returns when all it has committed was read.
func (p *producer) stop(t testing.TB) {
	require.NoError(t, p.input.Close())
	<-p.ended
	require.NoError(t, p.cmd.Wait())
}

// randomTiles returns so many; of those, only such whose key is on the node.
func randomTiles(n int, on func(fence.TileID) bool) []fence.TileID {
	var ids []fence.TileID
	for len(ids) < n {
		if id := fence.TileID(rand.Uint64() | 1); on == nil || on(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// stopwatch takes the time from each commit's answer to the return of the publish that had it.
type stopwatch struct {
	fanout.Publisher
	index     map[fence.TileID]uint32
	published atomic.Int64

	mu    sync.Mutex
	open  map[uint64]int64 // by tile index and sequence: when the first of the two came, negative if the publish
	times []time.Duration
	on    bool
}

func newStopwatch(pub fanout.Publisher, ids []fence.TileID) *stopwatch {
	s := &stopwatch{Publisher: pub, index: map[fence.TileID]uint32{}, open: map[uint64]int64{}}
	for i, id := range ids {
		s.index[id] = uint32(i)
	}
	return s
}

func (s *stopwatch) Publish(ctx context.Context, m []fanout.Message) (int, error) {
	n, err := s.Publisher.Publish(ctx, m)
	now := time.Now().UnixNano()
	s.published.Add(int64(n))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return n, err
	}
	for i := range m[:n] {
		if f, err := fence.DecodeEntry(m[i].Data); err == nil {
			s.meet(s.index[m[i].Tile], uint64(f.Seq), -now)
		}
	}
	return n, err
}

func (s *stopwatch) took(part []receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.on {
		return
	}
	for _, r := range part {
		s.meet(r.tile, r.seq, r.replied)
	}
}

func (s *stopwatch) meet(tile uint32, seq uint64, at int64) {
	key := uint64(tile)<<40 | seq
	before, ok := s.open[key]
	switch {
	case !ok:
		s.open[key] = at
		return
	case (before < 0) == (at < 0):
		return // published again
	}
	delete(s.open, key)
	s.times = append(s.times, time.Duration(max(0, -(before+at)))) // the publish's is negative
}
