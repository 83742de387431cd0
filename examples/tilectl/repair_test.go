package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/pgfence"
	"github.com/tilefence/tilefence/internal/seed"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/stream/redisstream"
	"github.com/tilefence/tilefence/tile"
)

// counter is a game whose state is how many intents it has seen.
type counter struct{ n int }

func (c *counter) Resolve(_ fence.Tick, in []tile.Intent) (events [][]byte, outcomes []stream.Outcome) {
	for range in {
		events, outcomes = append(events, []byte("+")), append(outcomes, stream.Applied)
	}
	return events, outcomes
}
func (c *counter) Apply(_ fence.Tick, events [][]byte) error { c.n += len(events); return nil }
func (c *counter) Snapshot() ([]byte, error)                 { return make([]byte, c.n), nil }
func (c *counter) Restore(snapshot []byte) error             { c.n = len(snapshot); return nil }

// unsaved is a store that takes no snapshot: an owner leaves its words in the stream, as one that was killed does.
type unsaved struct{ fence.Store }

func (unsaved) SaveSnapshot(_ context.Context, s fence.SnapshotWrite) error {
	return &fence.StoreError{Op: "snapshot", Tile: s.Tile, Outcome: fence.ErrNotApplied, Err: context.DeadlineExceeded}
}

// patient is a tile that is damaged and repaired.
type patient struct {
	*servers
	t     *testing.T
	id    fence.TileID
	k     fence.Keys
	words int // acknowledged
	end   *fence.Entry
}

func newPatient(t *testing.T, s *servers) *patient {
	p := &patient{servers: s, t: t, id: fence.TileID(rand.Uint64()>>1 | 1)}
	p.k = fence.KeysOf(p.id)
	t.Cleanup(func() {
		s.client.Del(context.WithoutCancel(t.Context()), p.k.Owner, p.k.Stream, p.k.Snapshot, p.k.Marks, p.k.Dead)
	})
	return p
}

// run starts an owner. stop ends it, and returns the state that it had, or why it could not run.
func (p *patient) run() (own *tile.TileProcessor, stop func() (int, error)) {
	game := &counter{}
	seams := p.seams
	seams.Store = unsaved{seams.Store}
	own, err := tile.New(p.id, "127.0.0.1:1", seams, game, &tile.Config{TickInterval: 5 * time.Millisecond,
		SnapshotEvery: 1 << 20, Timeouts: tile.Timeouts{BootTimeout: 500 * time.Millisecond}})
	require.NoError(p.t, err)
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- own.Run(ctx) }()
	return own, func() (int, error) {
		cancel()
		return game.n, <-ended
	}
}

// play runs the tile for n words, and says why it could not.
func (p *patient) play(n int) error { return p.playFor(p.t.Context(), n) }

func (p *patient) playFor(ctx context.Context, n int) error {
	own, stop := p.run()
	for range n {
		if _, err := own.Submit(ctx, tile.Intent{Tile: p.id}); err != nil {
			_, ended := stop()
			return fmt.Errorf("%w: %w", err, ended)
		}
		p.words++
	}
	state, err := stop()
	assert.Equal(p.t, p.words, state, "every word that was acknowledged is there")
	return err
}

// last is the last entry of the stream, or of the stream as it was before several injuries.
func (p *patient) last() fence.Entry {
	if p.end != nil {
		return *p.end
	}
	m, err := p.client.XRevRangeN(p.t.Context(), p.k.Stream, "+", "-", 1).Result()
	require.NoError(p.t, err)
	frame, _ := m[0].Values[stream.FrameField].(string)
	e, err := fence.DecodeEntry([]byte(frame))
	require.NoError(p.t, err)
	return e
}

// do runs a command on the tile's server, as a writer that is hostile or broken does.
func (p *patient) do(args ...any) { require.NoError(p.t, p.client.Do(p.t.Context(), args...).Err()) }

// own writes the owner hash.
func (p *patient) own(head fence.Position, tick uint64) {
	p.do("hset", p.k.Owner, "head", head.String(), "tick", tick, "contact", "evil:1\x1b[2J")
	p.do("pexpire", p.k.Owner, 60_000)
}

// forge appends an entry that follows the last one, with an epoch.
func (p *patient) forge(epoch fence.Epoch) fence.Entry {
	at := p.last().Position
	at.Epoch = epoch
	e := (&fence.Commit{Tile: p.id, Epoch: epoch, Contact: "evil:1", Tick: 1, Prev: at}).Entry()
	p.do("xadd", p.k.Stream, fmt.Sprintf("%d-0", e.Seq), stream.FrameField, string(e.Frame))
	return e
}

func (p *patient) tilectl(line string) (int, string) {
	var out, errs bytes.Buffer
	args := append(slices.Clone(p.flags), strings.Fields(line)...)
	status := run(p.t.Context(), append(args, p.id.String()), strings.NewReader(""), &out, &errs)
	return status, out.String() + errs.String()
}

// injury is one kind of damage.
type injury struct {
	of     string // what it damages, a letter each
	field  string // as it is named
	asked  string // what -delete must name for it to be mended
	breaks func(p *patient) error
	do     func(p *patient)
}

// unplayable is why no owner can run a tile.
func unplayable(p *patient) error {
	ctx, cancel := context.WithTimeout(p.t.Context(), 300*time.Millisecond)
	defer cancel()
	return p.playFor(ctx, 1)
}

// resyncs is what a consumer of the whole stream is answered.
func resyncs(p *patient) error {
	errs := p.seams.Log.Mark(p.t.Context(), []stream.MarkWrite{{Tile: p.id, Consumer: stream.BridgeAcked,
		Seq: p.last().Seq}})
	return slices.Concat(errs, []error{nil})[0]
}

// counted is the tick of an owner that goes on from a raised one, if that was believed.
func counted(p *patient) error {
	if err := p.play(1); err != nil {
		return err
	}
	tick, err := p.client.HGet(p.t.Context(), p.k.Owner, "tick").Uint64()
	if err == nil && tick > 1_000_000 {
		p.own(p.last().Position, tick+1_000_000)
		err = fmt.Errorf("its next owner is at tick %d", tick)
	}
	return err
}

// unmoved is a mark that does not come down to where its consumer is, so that trims take what it has not read.
func unmoved(p *patient) error {
	err := p.seams.Log.Mark(p.t.Context(), []stream.MarkWrite{{Tile: p.id, Consumer: stream.BridgeAcked, Seq: 1}})
	require.Nil(p.t, err)
	all, wrong := p.seams.Log.Marks(p.t.Context(), []fence.TileID{p.id})
	require.NoError(p.t, wrong)
	if at := all[0].Marks[stream.BridgeAcked].Seq; at != 1 {
		return fmt.Errorf("the bridge's mark is at %d", at)
	}
	return nil
}

// outshone is what owners go above, if it can be.
func outshone(p *patient) error {
	all, err := p.seams.Log.Marks(p.t.Context(), []fence.TileID{p.id})
	require.NoError(p.t, err)
	if all[0].Shown == high {
		return errors.New("no owner can go above what was shown")
	}
	return nil
}

const high = fence.MaxNumber

var injuries = map[string]injury{
	"epoch": {of: "oe", field: "owner hash: epoch", breaks: unplayable, do: func(p *patient) {
		p.own(p.forge(high).Position, 1)
	}},
	"epoch of the hash": {of: "o", field: "owner hash: epoch", breaks: unplayable, do: func(p *patient) {
		at := p.last().Position
		at.Epoch = high
		p.own(at, 1)
	}},
	"epoch of an entry": {of: "e", field: "stream end", breaks: unplayable, do: func(p *patient) { p.forge(high) }},
	"sequence of the hash": {of: "o", field: "owner hash: sequence", breaks: unplayable, do: func(p *patient) {
		at := p.last().Position
		at.Seq = high
		p.own(at, 1)
	}},
	"sequence of an entry": {of: "oe", field: "stream end", breaks: unplayable, do: func(p *patient) {
		at := p.last().Position
		at.Seq = high - 1
		e := (&fence.Commit{Tile: p.id, Epoch: at.Epoch, Contact: "evil:1", Tick: 1, Prev: at}).Entry()
		p.do("xadd", p.k.Stream, fmt.Sprintf("%d-0", e.Seq), stream.FrameField, string(e.Frame))
		p.own(e.Position, 1)
	}},
	"tick": {of: "o", field: "owner hash: tick", do: func(p *patient) { p.own(p.last().Position, high) }},
	"tick by a million": {of: "o", field: "owner hash: tick", breaks: counted, do: func(p *patient) {
		p.own(p.last().Position, uint64(p.last().Tick)+1_000_000)
	}},
	"owner hash": {of: "o", field: "owner hash", breaks: unplayable, do: func(p *patient) {
		p.do("hset", p.k.Owner, "head", "\x1b]0;x")
	}},
	"head": {of: "o", field: "owner hash: head", breaks: unplayable, do: func(p *patient) {
		p.own(fence.Position{Epoch: p.last().Epoch, Seq: 1, Chain: 7}, uint64(p.last().Tick))
	}},
	"no end": {of: "o", field: "owner hash", do: func(p *patient) {
		p.own(p.last().Position, uint64(p.last().Tick))
		p.do("persist", p.k.Owner)
	}},
	"ID": {of: "e", field: "stream end", breaks: unplayable, do: func(p *patient) {
		p.do("xadd", p.k.Stream, "18446744073709551615-18446744073709551615", "f", "\x00", "\u202e", "x")
	}},
	"many entries": {of: "e", field: "stream end", breaks: unplayable, do: func(p *patient) {
		p.client.Pipelined(p.t.Context(), func(pipe redis.Pipeliner) error {
			for range 250 {
				pipe.XAdd(p.t.Context(), &redis.XAddArgs{Stream: p.k.Stream, Values: []any{"g", "x"}})
			}
			return nil
		})
	}},
	"last ID": {of: "e", field: "stream last ID", breaks: unplayable, do: func(p *patient) {
		p.do("xsetid", p.k.Stream, "18446744073709551615-18446744073709551615")
	}},
	"stranger after the head": {of: "oe", field: "stream end", breaks: unplayable, do: func(p *patient) {
		head := p.last()
		p.own(head.Position, uint64(head.Tick))
		at := head.Position
		at.Chain++
		e := (&fence.Commit{Tile: p.id, Epoch: at.Epoch, Contact: "evil:1", Tick: 1, Prev: at}).Entry()
		p.do("xadd", p.k.Stream, fmt.Sprintf("%d-0", e.Seq), stream.FrameField, string(e.Frame))
	}},
	"snapshot sequence": {of: "p", field: "snapshot: position", breaks: unplayable,
		do: func(p *patient) { p.do("hset", p.k.Snapshot, "seq", uint64(high)) }},
	"snapshot epoch": {of: "p", field: "snapshot: position", breaks: unplayable,
		do: func(p *patient) { p.do("hset", p.k.Snapshot, "epoch", "x") }},
	"snapshot tick": {of: "k", field: "snapshot: tick", do: func(p *patient) {
		p.do("hset", p.k.Snapshot, "tick", uint64(high))
	}},
	"snapshot time": {of: "a", field: "snapshot: at", breaks: unplayable,
		do: func(p *patient) { p.do("hset", p.k.Snapshot, "at", "-1") }},
	"mark": {of: "m", field: "mark bridge", breaks: unmoved, do: func(p *patient) {
		p.do("hset", p.k.Marks, "bridge", uint64(p.last().Seq)+1000, "bridge.at", 1)
	}},
	"mark of a relay": {of: "r", field: "mark relay:a", do: func(p *patient) {
		p.do("hset", p.k.Marks, "relay:a", uint64(p.last().Seq)+1, "relay:a.at", 1)
	}},
	"shown": {of: "h", field: "shown", breaks: outshone, do: func(p *patient) {
		p.do("hset", p.k.Marks, "shown", uint64(high))
	}},
	"trimmed": {of: "t", field: "trimmed", breaks: resyncs, do: func(p *patient) {
		p.do("hset", p.k.Marks, "trimmed", uint64(p.last().Seq)+1000)
	}},
	"owner is a list": {of: "o", field: "owner key", asked: "owner", breaks: unplayable, do: func(p *patient) {
		p.do("del", p.k.Owner)
		p.do("rpush", p.k.Owner, "x")
	}},
	"marks are a text": {of: "mrht", field: "marks key", asked: "marks", breaks: resyncs, do: func(p *patient) {
		p.do("set", p.k.Marks, "x")
	}},
	"letters are a set": {of: "d", field: "dead key", asked: "dead", do: func(p *patient) {
		p.do("sadd", p.k.Dead, "x")
	}},
}

// heal repairs the tile, after a dry run that names each injury, and plays it.
func (p *patient) heal(done ...injury) {
	t := p.t
	named, asked := []string{}, ""
	for _, i := range done {
		named = append(named, i.field)
		if i.asked != "" {
			asked += "," + i.asked
		}
	}
	status, out := p.tilectl("repair")
	require.Equal(t, statusFailed, status, out)
	for _, field := range named {
		assert.Contains(t, out, field)
	}
	assert.NotContains(t, out, "\x1b", "escaped")
	assert.NotContains(t, out, "\u202e", "escaped")
	again, _ := p.tilectl("repair -json")
	require.Equal(t, statusFailed, again, "a dry run changes nothing")
	line := "repair -apply -for 50ms"
	if asked != "" {
		line += " -delete " + strings.Trim(asked, ",")
	}
	status, out = p.tilectl(line)
	require.Equal(t, statusOK, status, out)
	status, out = p.tilectl("repair")
	require.Equal(t, statusOK, status, out)
	assert.Contains(t, out, "nothing to mend")
	require.NoError(t, p.play(2), out)
	status, out = p.tilectl("repair")
	require.Equal(t, statusOK, status, out)
}

// TestRepair: each kind of damage is named, and mended, and every word that was acknowledged is there.
func TestRepair(t *testing.T) {
	s := newServers(t)
	for name, i := range injuries {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, s)
			require.NoError(t, p.play(3))
			status, out := p.tilectl("repair")
			require.Equal(t, statusOK, status, out)
			i.do(p)
			if i.breaks != nil {
				require.Error(t, i.breaks(p))
			}
			if i.asked != "" {
				status, out = p.tilectl("repair -apply")
				require.Equal(t, statusFailed, status, out)
				require.Contains(t, out, "-delete "+i.asked)
			}
			p.heal(i)
		})
	}
}

// TestRepairOfAnyDamage: several kinds of damage at once, one after another.
func TestRepairOfAnyDamage(t *testing.T) {
	s, base := newServers(t), seed.Of(t)
	names := slices.Sorted(maps.Keys(injuries))
	for n := range 8 {
		t.Run(strconv.Itoa(n), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(base, uint64(n)))
			p := newPatient(t, s)
			require.NoError(t, p.play(1+r.IntN(5)))
			end := p.last()
			p.end = &end
			var done []injury
			for _, k := range r.Perm(len(names))[:2+r.IntN(3)] {
				i := injuries[names[k]]
				if !slices.ContainsFunc(done, func(o injury) bool { return strings.ContainsAny(o.of, i.of) }) {
					t.Log(names[k])
					i.do(p)
					done = append(done, i)
				}
			}
			p.heal(done...)
		})
	}
}

// TestRepairLeavesALivingOwnerAlone: a tile whose owner hash moves is not repaired.
func TestRepairLeavesALivingOwnerAlone(t *testing.T) {
	p := newPatient(t, newServers(t))
	own, stop := p.run()
	_, err := own.Submit(t.Context(), tile.Intent{Tile: p.id})
	require.NoError(t, err)
	p.words++
	injuries["shown"].do(p)
	status, out := p.tilectl("repair -apply -for 300ms")
	assert.Equal(t, statusFailed, status)
	assert.Contains(t, out, "its owner hash moves, so an owner runs it; stop the tile servers")
	assert.Contains(t, out, "refused")
	shown, err := p.client.HGet(t.Context(), p.k.Marks, "shown").Uint64()
	require.NoError(t, err)
	assert.EqualValues(t, high, shown, "nothing was written")
	_, err = stop()
	require.NoError(t, err)
	p.heal(injuries["shown"])
}

// TestRepairFreesAWaitingOwner: an owner that waits with its state, because its stream became a list, writes the stream
// again once that is deleted.
func TestRepairFreesAWaitingOwner(t *testing.T) {
	p := newPatient(t, newServers(t))
	own, stop := p.run()
	_, err := own.Submit(t.Context(), tile.Intent{Tile: p.id})
	require.NoError(t, err)
	p.do("del", p.k.Stream)
	p.do("rpush", p.k.Stream, "x")
	answered := make(chan error, 1)
	go func() {
		_, err := own.Submit(t.Context(), tile.Intent{Tile: p.id})
		answered <- err
	}()
	waittest.Until(t, func() bool { // it waits: its hash moves no more
		p.tilectl("repair -apply -for 200ms -delete stream")
		return p.client.Type(t.Context(), p.k.Stream).Val() != "list"
	}, waitFor, poll)
	require.NoError(t, <-answered)
	state, err := stop()
	require.NoError(t, err)
	assert.Equal(t, 2, state)
	p.words = 2
	require.NoError(t, p.play(1))
	status, out := p.tilectl("repair")
	require.Equal(t, statusOK, status, out)
}

// TestRepairNeverGuesses: what an owner may have committed stays, the command says so, and deletes it when it is asked.
func TestRepairNeverGuesses(t *testing.T) {
	s := newServers(t)
	for name, c := range map[string]struct {
		field, remedy string
		do            func(p *patient)
		asked         string
	}{
		"the stream is a list": {"stream key", "checkpoint restore", func(p *patient) {
			p.do("del", p.k.Stream)
			p.do("rpush", p.k.Stream, "x")
		}, "stream,owner"},
		"the snapshot is a text": {"snapshot key", "checkpoint restore", func(p *patient) {
			p.do("set", p.k.Snapshot, "x")
		}, "snapshot,stream,owner"},
		"the snapshot is gone": {"snapshot", "checkpoint restore", func(p *patient) { p.do("del", p.k.Snapshot) },
			"snapshot,stream,owner"},
		"the blob is damaged": {"snapshot", "checkpoint restore", func(p *patient) {
			p.do("hset", p.k.Snapshot, "blob", "x")
		}, "snapshot,stream,owner"},
		"the snapshot is of no entry": {"snapshot", "checkpoint restore", func(p *patient) {
			p.do("hset", p.k.Snapshot, "chain", "00000000000000ff", "seq", 2)
		}, "snapshot,stream,owner"},
		"the head is not in the stream": {"owner hash: head", "-delete owner", func(p *patient) {
			head := p.last()
			at := head.Position
			at.Seq += 7
			p.own(at, uint64(head.Tick))
		}, "owner"},
		"the last entry is lost": {"stream last ID", "-delete entries", func(p *patient) {
			head := p.last()
			p.own(head.Position, uint64(head.Tick))
			p.do("xdel", p.k.Stream, fmt.Sprintf("%d-0", head.Seq))
		}, "entries"},
		"an entry in between is lost": {"stream", "-delete entries", func(p *patient) {
			p.do("xdel", p.k.Stream, fmt.Sprintf("%d-0", p.last().Seq-1))
		}, "entries"},
		"the last entry is of a later release": {"stream", "-delete entries", func(p *patient) {
			e := p.last()
			p.do("xadd", p.k.Stream, fmt.Sprintf("%d-0", e.Seq+1), "f", "\x02"+string(e.Frame[1:]))
		}, "entries"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPatient(t, s)
			require.NoError(t, p.play(3))
			c.do(p)
			before := p.client.Dump(t.Context(), p.k.Stream).Val()
			status, out := p.tilectl("repair -apply -for 20ms")
			require.Equal(t, statusFailed, status, out)
			assert.Contains(t, out, c.field)
			assert.Contains(t, out, "undecided")
			assert.Contains(t, out, c.remedy)
			assert.Equal(t, before, p.client.Dump(t.Context(), p.k.Stream).Val())
			status, out = p.tilectl("repair -apply -for 20ms -delete " + c.asked)
			require.Equal(t, statusOK, status, out)
			status, out = p.tilectl("repair")
			require.Equal(t, statusOK, status, out)
		})
	}
}

// TestRepairIsConditional: whatever changes between the examination and the repair, nothing is written.
func TestRepairIsConditional(t *testing.T) {
	s := newServers(t)
	for what, change := range map[string]func(p *patient){
		"owner":    func(p *patient) { p.do("pexpire", p.k.Owner, 40_000) }, // as a refresh does
		"stream":   func(p *patient) { p.do("xadd", p.k.Stream, "*", "g", "x") },
		"snapshot": func(p *patient) { p.do("hset", p.k.Snapshot, "at", 7) },
		"marks":    func(p *patient) { p.do("hset", p.k.Marks, "shown", 8) },
	} {
		p := newPatient(t, s)
		require.NoError(t, p.play(3))
		for _, name := range []string{"shown", "snapshot epoch", "epoch"} {
			injuries[name].do(p)
		}
		log, _ := p.seams.Log.(*redisstream.Log)
		x, err := log.Examine(t.Context(), p.id, 1)
		require.NoError(t, err)
		require.Len(t, x.Damage, 4)
		change(p)
		dump := func() (all []string) {
			for _, key := range []string{p.k.Owner, p.k.Stream, p.k.Snapshot, p.k.Marks} {
				all = append(all, p.client.Dump(t.Context(), key).Val())
			}
			return all
		}
		before := dump()
		var changed *redisstream.ChangedError
		require.ErrorAs(t, log.Repair(t.Context(), x), &changed)
		assert.Equal(t, what, changed.What)
		assert.Equal(t, before, dump(), what)
		x, err = log.Examine(t.Context(), p.id, 1)
		require.NoError(t, err)
		require.NoError(t, log.Repair(t.Context(), x))
	}
}

// TestRepairOfAWorld: without a tile, all tiles of the world that is meant are looked at, and of no other.
func TestRepairOfAWorld(t *testing.T) {
	p := newPatient(t, newServers(t))
	pool, err := pgxpool.New(t.Context(), p.flags[3])
	require.NoError(t, err)
	defer pool.Close()
	authority, err := pgfence.New(pool, &pgfence.Config{World: "staging"})
	require.NoError(t, err)
	require.NoError(t, authority.Migrate(t.Context()))
	p.k = fence.World{Name: "staging"}.Keys(p.id)
	for _, id := range []fence.TileID{p.id, 1, 2} {
		_, err = authority.Claim(t.Context(), fence.Claim{Tile: id, Contact: "10.0.0.1:7000", ID: fence.NewClaimID()})
		require.NoError(t, err)
	}
	injuries["shown"].do(p)
	repair := func(line string) (int, string) {
		var out, errs bytes.Buffer
		status := run(t.Context(), append(slices.Clone(p.flags), strings.Fields(line)...), strings.NewReader(""), &out,
			&errs)
		return status, out.String() + errs.String()
	}
	status, out := p.tilectl("repair")
	assert.Equal(t, statusOK, status, out)
	status, out = repair("repair -world staging")
	assert.Equal(t, statusFailed, status, out)
	assert.Equal(t, 1, strings.Count(out, "would be")+strings.Count(out, "shown"), out)
	status, out = repair("repair -world staging -apply")
	assert.Equal(t, statusOK, status, out)
	assert.Contains(t, out, "1 of 3 tiles are mended")
	shown, err := p.client.HGet(t.Context(), p.k.Marks, "shown").Uint64()
	require.NoError(t, err)
	assert.EqualValues(t, 1, shown, "the authority's epoch")
	status, out = repair("repair -world staging")
	assert.Equal(t, statusOK, status, out)
	assert.Contains(t, out, "3 tiles: nothing to mend")
}

// TestRepairUsage: what the command line must and must not say.
func TestRepairUsage(t *testing.T) {
	p := newPatient(t, newServers(t))
	for line, want := range map[string]string{
		"repair -apply -dry-run":      "takes -apply or -dry-run",
		"repair -delete nothing":      "-delete takes names of owner,stream,snapshot,marks,dead,entries",
		"repair 1 x":                  "tile",
		"repair -world=NotAWorld ":    "-world: ",
		"repair -postgres= ":          "-postgres is missing",
		"repair -apply -delete owner": "",
	} {
		status, out := p.tilectl(line)
		if want == "" {
			assert.Equal(t, statusOK, status, "%s: %s", line, out)
			continue
		}
		assert.Equal(t, statusUsage, status, "%s: %s", line, out)
		assert.Contains(t, out, want, line)
	}
}
