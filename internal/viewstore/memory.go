package viewstore

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/listen"
)

// Memory is a Store in this process: for tests, for relays that share it, and as the specification of other stores.
type Memory struct {
	limits Limits

	mu     sync.Mutex
	groups [Groups]memoryGroup
	heard  listen.Set[fence.TileID, func(Version)]
}

var _ Store = (*Memory)(nil)

type memoryGroup struct {
	index  map[fence.TileID]*memoryEntry
	values map[valueName][]byte
	old    []oldValue // of superseded versions, in the order in which they end
	locks  map[fence.TileID]memoryLock
	Usage
}

type memoryEntry struct {
	Version
	token Token
	used  time.Time
}

// valueName names a value: the tail of the version at, or the snapshot at.
type valueName struct {
	tile fence.TileID
	at   fence.Position
	base bool
}

type oldValue struct {
	valueName
	ends time.Time
}

type memoryLock struct {
	token Token
	ends  time.Time
}

// New returns an empty store with the default limits.
func New() *Memory {
	m := &Memory{limits: Limits{Budget: defaultBudget, Grace: defaultGrace}}
	m.Flush()
	return m
}

// NewMemory returns an empty store; nil limits are the defaults. The error is a *fence.ArgumentError.
func NewMemory(limits *Limits) (*Memory, error) {
	l, err := limits.WithDefaults()
	if err != nil {
		return nil, err
	}
	m := &Memory{limits: l}
	m.Flush()
	return m, nil
}

// Flush forgets everything, locks included.
func (m *Memory) Flush() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.groups {
		m.groups[i] = memoryGroup{index: map[fence.TileID]*memoryEntry{}, values: map[valueName][]byte{},
			locks: map[fence.TileID]memoryLock{}}
	}
}

// Corrupt changes the values that are stored of a tile, for tests.
func (m *Memory) Corrupt(tile fence.TileID, change func(value []byte) []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(tile)
	for name, b := range g.values {
		if name.tile == tile {
			g.values[name] = change(slices.Clone(b))
		}
	}
}

// of is the group of a tile. The mutex is held.
func (m *Memory) of(tile fence.TileID) *memoryGroup { return &m.groups[GroupOf(tile)] }

// Find implements Store.
func (m *Memory) Find(ctx context.Context, tile fence.TileID) (Version, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.of(tile).index[tile]; e != nil {
		return e.found(time.Now()), true, ctx.Err()
	}
	return Version{}, false, ctx.Err()
}

// found is the version as it is found now.
func (e *memoryEntry) found(now time.Time) Version {
	e.used = now
	v := e.Version
	v.Age = now.Sub(time.UnixMicro(int64(v.Stamp)))
	return v
}

// Values implements Store.
func (m *Memory) Values(
	ctx context.Context, tile fence.TileID, v Version, snapshot bool,
) (base, tail []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(tile)
	if snapshot && !v.Base.IsZero() {
		base = g.values[valueName{tile, v.Base, true}]
	}
	return base, g.values[valueName{tile, v.At, false}], ctx.Err()
}

// Lock implements Store.
func (m *Memory) Lock(ctx context.Context, tile fence.TileID, seen Version, lease time.Duration) (Grant, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, now := m.of(tile), time.Now()
	g.reclaim(now)
	var newest Version
	token := Token(now.UnixMicro())
	if e := g.index[tile]; e != nil {
		newest, token = e.Version, max(token, e.token+1)
	}
	switch held := g.locks[tile]; {
	case newest.At != seen.At || newest.Stamp != seen.Stamp:
		grant := Grant{Changed: true}
		if e := g.index[tile]; e != nil {
			grant.Newest = e.found(now)
		}
		return grant, ctx.Err()
	case now.Before(held.ends):
		return Grant{}, ctx.Err()
	default:
		token = max(token, held.token+1)
	}
	g.locks[tile] = memoryLock{token, now.Add(lease)}
	return Grant{Token: token}, ctx.Err()
}

// Renew implements Store.
func (m *Memory) Renew(ctx context.Context, tile fence.TileID, token Token, lease time.Duration) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(tile)
	held := g.locks[tile]
	if held.token != token || !time.Now().Before(held.ends) {
		return false, ctx.Err()
	}
	g.locks[tile] = memoryLock{token, time.Now().Add(lease)}
	return true, ctx.Err()
}

// Unlock implements Store.
func (m *Memory) Unlock(ctx context.Context, tile fence.TileID, token Token) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.of(tile).unlock(tile, token)
	return ctx.Err()
}

func (g *memoryGroup) unlock(tile fence.TileID, token Token) {
	if g.locks[tile].token == token {
		delete(g.locks, tile)
	}
}

// Put implements Store.
func (m *Memory) Put(ctx context.Context, p Put) (Verdict, error) {
	m.mu.Lock()
	verdict := m.put(&p)
	var newest Version
	if e := m.of(p.Tile).index[p.Tile]; e != nil {
		newest = e.Version
	}
	m.mu.Unlock()
	if verdict == Stored || verdict == Confirmed {
		for _, heard := range m.heard.Of(p.Tile) {
			heard(newest)
		}
	}
	return verdict, ctx.Err()
}

func (m *Memory) put(p *Put) Verdict {
	g, now := m.of(p.Tile), time.Now()
	g.reclaim(now)
	e := g.index[p.Tile]
	if e != nil && e.At == p.At {
		e.Stamp, e.token, e.used = uint64(now.UnixMicro()), max(e.token, p.Token), now
		g.unlock(p.Tile, p.Token)
		return Confirmed
	}
	verdict := g.store(p, now, &m.limits)
	if verdict != NeedsBase {
		g.unlock(p.Tile, p.Token)
	}
	return verdict
}

// older reports whether a version may not replace the newest one.
func older(newest *memoryEntry, p *Put) bool {
	return Before(p.At, newest.At) || !Before(newest.At, p.At) && p.Token <= newest.token
}

// store puts a version into the group in the place of the newest one.
func (g *memoryGroup) store(p *Put, now time.Time, limits *Limits) Verdict {
	need, share := int64(len(p.Tail)+ValueCost), limits.Budget/Groups
	if p.Snapshot != nil {
		need += int64(len(p.Snapshot) + ValueCost)
	}
	base, tail := valueName{p.Tile, p.Base, true}, valueName{p.Tile, p.At, false}
	e := g.index[p.Tile]
	switch {
	case e != nil && older(e, p):
		return Older
	case p.Tail == nil:
		return Gone
	case p.Snapshot == nil && !p.Base.IsZero() && g.values[base] == nil:
		return NeedsBase
	}
	if need > share/4 {
		return TooLarge
	}
	var reused []oldValue
	g.old = slices.DeleteFunc(g.old, func(o oldValue) bool {
		same := o.valueName == base || o.valueName == tail
		if same {
			reused = append(reused, o)
		}
		return same
	})
	if !g.makeRoom(p.Tile, need, share) {
		g.old = reused // all others were evicted
		return TooLarge
	}
	if e != nil {
		ends := now.Add(limits.Grace)
		g.old = append(g.old, oldValue{valueName{p.Tile, e.At, false}, ends})
		if e.Base != p.Base && !e.Base.IsZero() {
			g.old = append(g.old, oldValue{valueName{p.Tile, e.Base, true}, ends})
		}
	}
	g.set(tail, p.Tail)
	if p.Snapshot != nil {
		g.set(base, p.Snapshot)
	}
	g.index[p.Tile] = &memoryEntry{Version: Version{At: p.At, Base: p.Base, Stamp: uint64(now.UnixMicro())},
		token: p.Token, used: now}
	return Stored
}

func (g *memoryGroup) set(name valueName, b []byte) {
	g.remove(name)
	g.values[name] = b
	g.Bytes += int64(len(b) + ValueCost)
}

func (g *memoryGroup) remove(name valueName) {
	if b, there := g.values[name]; there {
		g.Bytes -= int64(len(b) + ValueCost)
		delete(g.values, name)
	}
}

// reclaim removes what has outlived its grace.
func (g *memoryGroup) reclaim(now time.Time) {
	for len(g.old) > 0 && !now.Before(g.old[0].ends) {
		g.remove(g.old[0].valueName)
		g.old = g.old[1:]
	}
}

// makeRoom evicts until need bytes fit: superseded versions first, then the tiles used least recently.
func (g *memoryGroup) makeRoom(own fence.TileID, need, share int64) bool {
	for g.Bytes+need > share {
		if len(g.old) > 0 {
			g.remove(g.old[0].valueName)
			g.old, g.Evicted = g.old[1:], g.Evicted+1
			continue
		}
		var victim *memoryEntry
		var tile fence.TileID
		for t, e := range g.index {
			if t != own && (victim == nil || cmp.Or(e.used.Compare(victim.used), cmp.Compare(t, tile)) < 0) {
				victim, tile = e, t
			}
		}
		if victim == nil {
			return false
		}
		g.forget(tile, victim)
		g.Evicted++
	}
	return true
}

func (g *memoryGroup) forget(tile fence.TileID, e *memoryEntry) {
	g.remove(valueName{tile, e.At, false})
	g.remove(valueName{tile, e.Base, true})
	delete(g.index, tile)
}

// Drop implements Store.
func (m *Memory) Drop(ctx context.Context, tile fence.TileID, at fence.Position) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	g := m.of(tile)
	if e := g.index[tile]; e != nil && e.At == at {
		g.forget(tile, e)
	}
	return ctx.Err()
}

// Listen implements Store.
func (m *Memory) Listen(tile fence.TileID, heard func(Version)) (stop func()) {
	return m.heard.Add(tile, heard)
}

// Usage implements Store.
func (m *Memory) Usage(ctx context.Context) (Usage, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var sum Usage
	for i := range m.groups {
		g := &m.groups[i]
		sum.Bytes, sum.Evicted = sum.Bytes+g.Bytes, sum.Evicted+g.Evicted
		sum.Tiles, sum.Old = sum.Tiles+len(g.index), sum.Old+len(g.old)
	}
	return sum, ctx.Err()
}
