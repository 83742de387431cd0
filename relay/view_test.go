package relay

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
)

// line is one history: entries from the beginning, without rebases.
type line []fence.Entry

func (l line) end() fence.Position {
	if len(l) == 0 {
		return fence.Position{}
	}
	return l[len(l)-1].Position
}

// next is an entry that continues the history under an epoch. salt tells forks apart.
func (l line) next(epoch fence.Epoch, salt byte) fence.Entry {
	prev := l.end()
	payload := append(binary.BigEndian.AppendUint32(nil, uint32(prev.Seq+1)), salt)
	return fence.NewEntry(fence.Entry{Tile: tileA, Kind: fence.KindBatch,
		Position: fence.Position{Epoch: epoch, Seq: prev.Seq + 1},
		Prev:     prev, Tick: fence.Tick(prev.Seq + 1), Payload: payload})
}

// grow appends n entries.
func (l line) grow(n int, epoch fence.Epoch, salt byte) line {
	l = l[:len(l):len(l)]
	for range n {
		l = append(l, l.next(epoch, salt))
	}
	return l
}

// fold is the state after the first n entries.
func (l line) fold(n int) []byte {
	var b []byte
	for _, e := range l[:n] {
		b = append(b, e.Payload...)
	}
	return b
}

// recovery is what a store with this history and a snapshot after the first n entries answers; n < 0: none.
func (l line) recovery(n int) *stream.Recovery {
	r := &stream.Recovery{Entries: l, Position: l.end()}
	if n > 0 {
		blob := l.fold(n)
		r.HasSnapshot, r.Entries = true, l[n:]
		r.Snapshot = fence.Snapshot{Position: l[n-1].Position, Tick: l[n-1].Tick,
			Blob: stream.AppendSnapshot(nil, blob, nil), Sum: fence.Checksum(blob)}
	}
	return r
}

func TestJudge(t *testing.T) {
	base := line{}.grow(10, 2, 'a')
	v := &view{}
	v.adopt(base.recovery(4), false)

	fork := base[:8].grow(1, 2, 'b')
	rebase := base.next(3, 'r')
	rebase.Kind, rebase.Prev = fence.KindRebase, fence.Position{}
	oldRebase := base[6]
	oldRebase.Kind = fence.KindRebase
	takeover := base.next(3, 'c')
	skipped := base.grow(2, 2, 'a')[11]
	backwards := base.next(2, 'x')
	backwards.Seq = 9
	for name, c := range map[string]struct {
		e    fence.Entry
		want verdict
	}{
		"the next":                                {base.next(2, 'a'), follows},
		"the next, of a new owner":                {takeover, follows},
		"the next, of an older owner":             {base.next(1, 'z'), stale},
		"the last again":                          {base[9], duplicate},
		"one of the tail":                         {base[6], duplicate},
		"one of the tail, of a wrong kind":        {oldRebase, duplicate},
		"the snapshot's":                          {base[3], duplicate},
		"older than the snapshot":                 {base[1], duplicate},
		"one too far":                             {skipped, breaks},
		"another at a known sequence":             {fork[8], breaks},
		"the next of another batch 10":            {base[:9].grow(1, 2, 'b').next(2, 'b'), breaks},
		"a rebase":                                {rebase, breaks},
		"a new owner over a batch that was lost":  {base[:9].next(3, 'd'), breaks},
		"one that claims to follow and goes back": {backwards, breaks},
	} {
		require.Equal(t, c.want, v.judge(&c.e), name)
	}
}

func TestCompare(t *testing.T) {
	base := line{}.grow(10, 2, 'a')
	v := &view{proven: 2}
	v.adopt(base.recovery(4), false)
	for name, c := range map[string]struct {
		p    fence.Position
		want relation
	}{
		"same":                         {base.end(), same},
		"more":                         {base.grow(3, 2, 'a').end(), ahead},
		"more, new owner":              {base.grow(3, 3, 'a').end(), ahead},
		"less":                         {base[7].Position, behind},
		"less, at the snapshot":        {base[3].Position, behind},
		"less, before the snapshot":    {base[1].Position, behind},
		"other, same sequence":         {base[:9].next(2, 'b').Position, forked},
		"other, higher epoch, shorter": {base[:7].next(3, 'b').Position, forked},
		"lower epoch":                  {base[:9].next(1, 'b').Position, lower},
		"nothing":                      {fence.Position{}, lower},
	} {
		require.Equal(t, c.want, v.compare(c.p), name)
	}
}

// A view that Config.Views gave, and whose epoch no store has vouched for, gives way to the store's history.
func TestUnprovenEpochIsNotKept(t *testing.T) {
	v := &view{}
	v.adopt(line{}.grow(10, fence.MaxNumber, 'f').recovery(4), false)
	v.prove(2)
	true2 := line{}.grow(12, 2, 'a')
	require.Equal(t, forked, v.compare(true2.end()))
	how, _ := v.adopt(true2.recovery(4), false)
	require.Equal(t, replaced, how)
	require.Equal(t, true2.end(), v.at)
}

func TestAdopt(t *testing.T) {
	base := line{}.grow(10, 2, 'a')
	with := func(stepBack bool, l line, snapshot int) (adoption, int, *view) {
		v := &view{proven: 2}
		v.adopt(base.recovery(4), false)
		how, news := v.adopt(l.recovery(snapshot), stepBack)
		return how, len(news), v
	}
	for name, c := range map[string]struct {
		l        line
		snapshot int
		stepBack bool
		how      adoption
		news     int
		at       fence.Position
	}{
		"same, newer snapshot":             {base, 9, false, kept, 0, base.end()},
		"more":                             {base.grow(5, 2, 'a'), 8, false, extended, 5, base.grow(5, 2, 'a').end()},
		"more, snapshot past what we have": {base.grow(5, 2, 'a'), 12, false, replaced, 0, base.grow(5, 2, 'a').end()},
		"fork, higher epoch": {base[:7].grow(1, 3, 'b'), 4, false, replaced, 0,
			base[:7].grow(1, 3, 'b').end()},
		"fork that is longer": {base[:7].grow(9, 3, 'b'), 4, false, replaced, 0,
			base[:7].grow(9, 3, 'b').end()},
		"lower epoch, longer":               {line{}.grow(20, 1, 'c'), 4, false, refused, 0, base.end()},
		"lower epoch, even with leave":      {line{}.grow(20, 1, 'c'), 4, true, refused, 0, base.end()},
		"less":                              {base[:8], 4, false, refused, 0, base.end()},
		"less, with leave":                  {base[:8], 4, true, replaced, 0, base[7].Position},
		"nothing left, even with leave":     {line{}, -1, true, refused, 0, base.end()},
		"the whole history, no snapshot":    {base.grow(1, 2, 'a'), -1, false, extended, 1, base.grow(1, 2, 'a').end()},
		"takeover right after what we have": {base.grow(1, 7, 'a'), 10, false, extended, 1, base.grow(1, 7, 'a').end()},
	} {
		how, news, v := with(c.stepBack, c.l, c.snapshot)
		require.Equal(t, c.how, how, name)
		require.Equal(t, c.news, news, name)
		require.Equal(t, c.at, v.at, name)
		require.True(t, v.whole, name)
	}
}

func TestStoreBehindStillCompletesTheCache(t *testing.T) {
	base := line{}.grow(10, 2, 'a')
	v := &view{}
	v.adopt(base.recovery(4), false)
	v.drop()
	require.False(t, v.whole)
	how, _ := v.adopt(base[:8].recovery(6), false)
	require.Equal(t, kept, how)
	require.True(t, v.whole)
	require.Equal(t, base.end(), v.at)
	require.Len(t, v.tail, 4)
}

// TestViewProperty drives a view with everything that may be done to it, next to the true histories.
func TestViewProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := &view{proven: fence.MaxNumber}
		l := line{}.grow(rapid.IntRange(0, 10).Draw(t, "begin"), 1, 'a')
		v.adopt(l.recovery(rapid.IntRange(-1, len(l)).Draw(t, "snapshot")), false)
		epoch := fence.Epoch(1)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				epoch += fence.Epoch(rapid.IntRange(0, 1).Draw(t, "newer"))
				e := l.next(epoch, 'a')
				require.Equal(t, follows, v.judge(&e))
				l = l.grow(1, epoch, 'a')
				v.push(&batch{Entry: e})
			},
			"extend": func(t *rapid.T) {
				l = l.grow(rapid.IntRange(0, 8).Draw(t, "n"), epoch, 'a')
				how, _ := v.adopt(l.recovery(rapid.IntRange(-1, len(l)).Draw(t, "snapshot")), false)
				require.NotEqual(t, refused, how)
			},
			"fork": func(t *rapid.T) {
				epoch++
				at := rapid.IntRange(0, len(l)).Draw(t, "at")
				l = l[:at].grow(rapid.IntRange(1, 8).Draw(t, "n"), epoch, byte(epoch))
				how, _ := v.adopt(l.recovery(rapid.IntRange(-1, len(l)).Draw(t, "snapshot")), false)
				require.NotEqual(t, refused, how)
			},
			"old store": func(t *rapid.T) {
				epoch := v.at.Epoch
				old := l[:rapid.IntRange(0, len(l)).Draw(t, "left")]
				v.adopt(old.recovery(rapid.IntRange(-1, len(old)).Draw(t, "snapshot")), false)
				require.Equal(t, epoch, v.at.Epoch)
			},
			"shorten": func(t *rapid.T) {
				if len(l) > 0 {
					n := rapid.IntRange(1, len(l)).Draw(t, "n")
					v.shorten(l.recovery(n).Snapshot)
				}
			},
			"drop": func(*rapid.T) { v.drop() },
			"": func(t *rapid.T) {
				require.Equal(t, l.end(), v.at)
				checkView(t, v, l)
			},
		})
	})
}

// checkView holds a view against the one true history.
func checkView(t *rapid.T, v *view, l line) {
	at, bytesHeld := v.start(), 0
	for _, b := range v.tail {
		require.Equal(t, at, b.Prev)
		at = b.Position
		bytesHeld += len(b.Payload)
	}
	require.Equal(t, v.at, at)
	require.Equal(t, bytesHeld, v.bytes)
	for i := range l {
		require.Contains(t, []verdict{duplicate, stale}, v.judge(&l[i]), "known history is never a gap")
	}
	for i := range len(l) + 1 {
		have := l[:i].end()
		s, ok := v.sync(takeScratch(), have, fence.AreaSet{})
		if !ok {
			require.False(t, v.whole)
			continue
		}
		state := l.fold(i)
		if s.GetReplace() {
			state = bytes.Clone(s.GetBlob())
			require.False(t, s.GetDivided())
		} else {
			require.Equal(t, have, s.GetFrom().Fence())
		}
		for _, f := range s.GetTail() {
			state = append(state, f.GetPayload()...)
		}
		require.Equal(t, l.fold(len(l)), append([]byte(nil), state...))
		require.Equal(t, v.at, s.GetPosition().Fence())
	}
	if v.whole {
		_, ok := v.sync(takeScratch(), fence.Position{}, fence.AreaSet{})
		require.True(t, ok)
	}
}
