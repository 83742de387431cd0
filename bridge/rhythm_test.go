package bridge

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// beat simulates a tile whose owner commits at given times, and a reader that follows its rhythm.
type beat struct {
	t      *testing.T
	rhythm rhythm
	commit []time.Duration // this process's clock
	clock  func(time.Duration) time.Duration
	trip   time.Duration // of a read

	reads int
	late  []time.Duration
	in    []bool // whether it was in rhythm when each was found
}

// play reads until all is found: when the rhythm says so and at least every 100 ms, every 10 ms out of rhythm.
func (b *beat) play() {
	next := 0
	for now := time.Duration(0); next < len(b.commit); {
		wasDue := b.rhythm.in() && b.rhythm.due() <= now
		began := now
		found := next
		for found < len(b.commit) && b.commit[found] <= now+b.trip/2 {
			found++
		}
		now += b.trip
		b.reads++
		for i := next; i < found; i++ {
			b.late = append(b.late, now-b.commit[i])
			b.in = append(b.in, b.rhythm.in())
			b.rhythm.found(b.clock(b.commit[i]).Milliseconds(), now, wasDue && i == found-1)
		}
		if found == next {
			b.rhythm.nothing(began)
		}
		next = found
		if !b.rhythm.in() {
			now = began + 10*time.Millisecond
			continue
		}
		now = max(now, min(b.rhythm.due(), began+100*time.Millisecond))
	}
}

// slow is how many of the entries from one on were found later than that.
func (b *beat) slow(from int, limit time.Duration) (n int) {
	for _, l := range b.late[from:] {
		if l > limit {
			n++
		}
	}
	return n
}

// ticks are the times of n commits, each off the beat by up to jitter.
func ticks(rng *rand.Rand, n int, period, jitter time.Duration) []time.Duration {
	at := make([]time.Duration, n)
	for i := range at {
		at[i] = 200*time.Millisecond + time.Duration(i)*period + time.Duration(rng.Int64N(int64(jitter)+1))
	}
	return at
}

func newBeat(t *testing.T, commit []time.Duration) *beat {
	return &beat{t: t, commit: commit, trip: 2 * time.Millisecond,
		clock: func(d time.Duration) time.Duration { return d + 1_700_000_000*time.Second }}
}

func seeded(t *testing.T) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestRhythmFollowsTheTick: with a jitter of some milliseconds a tile takes less than two reads a batch apart from
// those in between, and hardly one comes late.
func TestRhythmFollowsTheTick(t *testing.T) {
	rng := seeded(t)
	const ms = time.Millisecond
	for _, period := range []time.Duration{50 * ms, 100 * ms, 500 * ms, 1000 * ms} {
		for _, jitter := range []time.Duration{0, 2 * ms, 8 * ms} {
			b := newBeat(t, ticks(rng, 600, period, jitter))
			b.play()
			require.NotContains(t, b.in[10:], false)
			between := int(period / (100 * time.Millisecond))
			require.Less(t, b.reads, 600*(2+between)+60, "%v %v", period, jitter)
			require.LessOrEqual(t, b.slow(50, 12*time.Millisecond), 6, "%v %v", period, jitter)
		}
	}
}

// TestRhythmFindsTheClock: whatever the store's clock says, and however it drifts.
func TestRhythmFindsTheClock(t *testing.T) {
	rng := seeded(t)
	for name, clock := range map[string]func(time.Duration) time.Duration{
		"ahead":  func(d time.Duration) time.Duration { return d + 3e9*time.Second },
		"behind": func(d time.Duration) time.Duration { return d + 100*time.Second },
		"fast":   func(d time.Duration) time.Duration { return d + d/2000 + 1e9*time.Second },
		"slow":   func(d time.Duration) time.Duration { return d - d/2000 + 1e9*time.Second },
		"steps on": func(d time.Duration) time.Duration {
			return d + 1e9*time.Second + time.Duration(int(d.Minutes())*700)*time.Millisecond
		},
		"steps back": func(d time.Duration) time.Duration {
			return d + 1e9*time.Second - time.Duration(int(d.Minutes())*330)*time.Millisecond
		},
	} {
		b := newBeat(t, ticks(rng, 600, 500*time.Millisecond, 3*time.Millisecond))
		b.clock = clock
		b.play()
		require.LessOrEqual(t, b.slow(30, 15*time.Millisecond), 24, name)
		require.LessOrEqual(t, b.slow(0, 105*time.Millisecond), 0, name)
		require.Less(t, b.reads, 600*8, name)
	}
}

// TestRhythmWithTicksWithoutEvents: they are waited for in vain, and the beat goes on.
func TestRhythmWithTicksWithoutEvents(t *testing.T) {
	rng := seeded(t)
	var commit []time.Duration
	for _, at := range ticks(rng, 1000, 500*time.Millisecond, 3*time.Millisecond) {
		if rng.IntN(3) > 0 {
			commit = append(commit, at)
		}
	}
	b := newBeat(t, commit)
	b.play()
	require.LessOrEqual(t, b.slow(30, 15*time.Millisecond), len(commit)/20)
	require.LessOrEqual(t, b.slow(0, 105*time.Millisecond), 0)
}

// TestRhythmForgivesLateTicks: one in ten is late by up to 80 ms. The others are found in time.
func TestRhythmForgivesLateTicks(t *testing.T) {
	rng := seeded(t)
	commit := ticks(rng, 600, 500*time.Millisecond, 3*time.Millisecond)
	for i := range commit {
		if rng.IntN(10) == 0 {
			commit[i] += time.Duration(rng.IntN(80)) * time.Millisecond
		}
	}
	b := newBeat(t, commit)
	b.play()
	out := 0
	for _, in := range b.in[10:] {
		if !in {
			out++
		}
	}
	require.Less(t, out, 60)
	require.LessOrEqual(t, b.slow(30, 15*time.Millisecond), 130)
	require.LessOrEqual(t, b.slow(30, 35*time.Millisecond), 25)
}

// TestRhythmChanges: another rate, and another phase, are found within a few ticks; nothing waits longer than a
// poll between beats.
func TestRhythmChanges(t *testing.T) {
	var commit []time.Duration
	at := time.Second
	for _, part := range []time.Duration{500 * time.Millisecond, 200 * time.Millisecond, time.Second, 500 * time.Millisecond} {
		for range 50 {
			commit = append(commit, at)
			at += part
		}
		at += 170 * time.Millisecond // a takeover
	}
	b := newBeat(t, commit)
	b.play()
	require.LessOrEqual(t, b.slow(0, 105*time.Millisecond), 0)
	require.LessOrEqual(t, b.slow(0, 15*time.Millisecond), 30)
	for i := 10; i < len(commit); i++ {
		if i%50 > 12 {
			require.True(t, b.in[i], i)
		}
	}
}

// TestRhythmMoves: a takeover keeps the rate and moves the beat; the second entry after it is found in time, without
// learning anew.
func TestRhythmMoves(t *testing.T) {
	commit := ticks(seeded(t), 100, 500*time.Millisecond, 2*time.Millisecond)
	for i := 50; i < len(commit); i++ {
		commit[i] += 170 * time.Millisecond
	}
	b := newBeat(t, commit)
	b.play()
	require.NotContains(t, b.in[10:], false)
	require.LessOrEqual(t, b.slow(53, 12*time.Millisecond), 20)
}

// TestNoRhythm: what comes irregularly is not in rhythm, at least not often, and waits for no more than a poll.
func TestNoRhythm(t *testing.T) {
	rng := seeded(t)
	var commit []time.Duration
	at := time.Second
	for range 2000 {
		at += time.Duration(rng.Int64N(int64(time.Second)))
		commit = append(commit, at)
	}
	b := newBeat(t, commit)
	b.play()
	require.LessOrEqual(t, b.slow(0, 105*time.Millisecond), 0)
	in := 0
	for _, is := range b.in {
		if is {
			in++
		}
	}
	t.Logf("in rhythm %d of %d, reads %d", in, len(commit), b.reads)
	require.Less(t, in, len(commit)/3)
}

// TestRhythmEnds: a tile that stops is soon left to ordinary polling.
func TestRhythmEnds(t *testing.T) {
	b := newBeat(t, ticks(seeded(t), 50, 500*time.Millisecond, 0))
	b.play()
	now, reads := b.late[49]+b.commit[49], 0
	for b.rhythm.in() {
		now = b.rhythm.due()
		b.rhythm.nothing(now)
		reads++
	}
	require.Less(t, now-b.commit[49], 3*time.Second)
	require.LessOrEqual(t, reads, (rhythmMissed+1)*(len(retries)+1))
}
