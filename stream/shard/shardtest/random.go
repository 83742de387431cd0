package shardtest

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/stream/shard"
)

// ledger is what the replies so far allow to be said about the book: who holds which shard.
type ledger struct {
	t      *testing.T
	now    time.Duration
	heard  map[string]time.Duration // by holder, when it was last answered
	beat   map[string]uint64        // by holder, its last request
	holder map[int]string
	token  map[int]shard.Token
}

// check enters a reply and fails if it gives what another holds, or takes away what is the holder's.
func (l *ledger) check(m *member, r *shard.Request, reply *shard.Reply) {
	l.t.Helper()
	for _, s := range r.Release {
		if l.holder[s] == m.name {
			delete(l.holder, s)
		}
	}
	lasted := l.alive(m.name)
	for s := range m.ranges.Len() {
		g, has := reply.Find(s)
		before := l.holder[s]
		switch {
		case has && before != m.name:
			require.False(l.t, before != "" && l.alive(before), "shard %d was given to %s while %s held it", s, m.name, before)
			require.GreaterOrEqual(l.t, g.Token, l.token[s], "shard %d: an older lease", s)
			l.holder[s], l.token[s] = m.name, g.Token
		case has:
			require.GreaterOrEqual(l.t, g.Token, l.token[s], "shard %d: an older lease", s)
			require.True(l.t, !lasted || g.Token == l.token[s], "shard %d: the lease was replaced while it lasted", s)
			l.token[s] = g.Token
		case before == m.name:
			require.False(l.t, lasted, "shard %d was taken from %s, whose lease lasted", s, m.name)
			delete(l.holder, s)
		}
	}
	l.heard[m.name], l.beat[m.name] = l.now, r.Beat
}

// alive reports whether the leases of a holder have lasted until now.
func (l *ledger) alive(name string) bool {
	at, known := l.heard[name]
	return known && l.now-at < ttl
}

func (l *ledger) forget() {
	l.heard, l.beat = map[string]time.Duration{}, map[string]uint64{}
	l.holder, l.token = map[int]string{}, map[int]shard.Token{}
}

// random lets members come, beat, sleep, leave and die, requests be late and repeated, the store be away
// and lose the book, and holds every reply against a ledger. Afterwards those who live share everything.
func random(t *testing.T, b *bench) {
	rng := seeded(t)
	for range 5 {
		b.group += "x"
		randomRun(t, b, rng, 1+rng.IntN(24))
	}
}

// fuzz is one random run.
type fuzz struct {
	*bench
	ledger  *ledger
	rng     *rand.Rand
	members []*member
	old     []shard.Request // that were answered
}

func randomRun(t *testing.T, b *bench, rng *rand.Rand, shards int) {
	f := &fuzz{bench: b, ledger: &ledger{t: t}, rng: rng}
	f.ledger.forget()
	for step := range 200 {
		if op := rng.IntN(100); op < 8 && len(f.members) < 8 || len(f.members) == 0 {
			f.members = append(f.members, b.member(fmt.Sprintf("m%d", step), shards))
		} else {
			f.step(op, rng.IntN(len(f.members)))
		}
	}
	if len(f.members) == 0 {
		return
	}
	b.pass(3*ttl, f.members...) // the dead, and the outage that their death looks like
	settle(f.members...)
	requireShared(t, shards, f.members...)
}

func (f *fuzz) step(op, pick int) {
	switch {
	case op < 70:
		r := f.beat(f.members[pick], false)
		if f.rng.IntN(3) == 0 {
			f.old = append(f.old, r)
		}
	case op < 78:
		f.late()
	case op < 82: // leaves in good order
		f.beat(f.members[pick], true)
		f.members[pick].release = f.members[pick].all()
		f.members[pick].held = nil
		f.beat(f.members[pick], true)
		require.Empty(f.t, f.members[pick].last.Held)
		f.members = slices.Delete(f.members, pick, pick+1)
	case op < 86: // dies
		f.members = slices.Delete(f.members, pick, pick+1)
	case op < 98:
		by := time.Duration(1+f.rng.IntN(20)) * time.Minute
		if f.rng.IntN(10) == 0 {
			by = time.Duration(1+f.rng.IntN(3)) * ttl
		}
		f.Age(f.group, by)
		f.ledger.now += by
	default:
		f.Lose(f.group)
		f.ledger.forget()
		f.old = nil
	}
}

// beat makes a heartbeat of a member, which is sometimes slow to let go.
func (f *fuzz) beat(m *member, leaving bool) shard.Request {
	r := m.request(leaving)
	if !leaving && f.rng.IntN(4) == 0 {
		r.Release = nil
	}
	reply, err := f.Leases.Sync(f.t.Context(), r)
	require.NoError(f.t, err)
	f.ledger.check(m, &r, &reply)
	m.take(reply)
	return r
}

// late presents a request that was overtaken.
func (f *fuzz) late() {
	if len(f.old) == 0 {
		return
	}
	r := f.old[f.rng.IntN(len(f.old))]
	if r.Beat == f.ledger.beat[r.Holder] || !f.ledger.alive(r.Holder) {
		return // the last is answered again, and one that is forgotten may return
	}
	_, err := f.Leases.Sync(f.t.Context(), r)
	require.ErrorIs(f.t, err, shard.ErrLate)
}

// seeded returns a generator and prints the command that repeats the run.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if s := os.Getenv("TILEFENCE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("repeat with: TILEFENCE_SEED=%d go test -run '%s'", seed, t.Name())
	return rand.New(rand.NewPCG(seed, 0))
}
