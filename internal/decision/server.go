package decision

import (
	"context"
	"hash/crc32"

	"github.com/tilefence/tilefence/fence"
)

// Server is one server of a process: its calls are kept under its name.
type Server struct {
	log     *Log
	contact string
	index   int
}

// Server returns the server at contact. One that is started again is another one.
func (l *Log) Server(contact string) *Server {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s := &Server{log: l, contact: contact, index: l.servers}
	l.servers++
	l.keep(&Event{Kind: Began, Server: s.index, Contact: contact, Called: l.now()})
	return s
}

// put keeps an event that began at a time and is answered now.
func (s *Server) put(e Event, called int64) {
	e.Server, e.Called, e.Took = s.index, called, s.log.now()-called
	s.log.put(&e)
}

// Ended keeps that a tile's owner has ended under an epoch; superseded by a successor, if that has an epoch.
func (s *Server) Ended(id fence.TileID, held fence.Epoch, successor fence.Owner) {
	if s != nil {
		s.put(Event{Kind: Ended, Tile: id, Epoch: held, Answer: Answer{Current: successor}}, s.log.now())
	}
}

// Admitted keeps that the ledger has admitted an action; known: it knew it already.
func (s *Server) Admitted(action string, known bool) {
	if s != nil {
		s.put(Event{Kind: Admitted, Action: action, Answer: Answer{Outcome: OK, Duplicate: known}}, s.log.now())
	}
}

// Settled keeps that the ledger has recorded an action's outcome, and whether it gave the price back.
func (s *Server) Settled(action string, refunded bool) {
	if s != nil {
		s.put(Event{Kind: Settled, Action: action, Answer: Answer{Outcome: OK, Refunded: refunded}}, s.log.now())
	}
}

// Assigned keeps that a match plays on a tile, which its owner has under an epoch.
func (s *Server) Assigned(match string, id fence.TileID, e fence.Epoch) {
	if s != nil {
		s.put(Event{Kind: Assigned, Epoch: e, Action: match, Count: uint64(id), Answer: Answer{Outcome: OK}},
			s.log.now())
	}
}

// Authority returns an authority that passes every call on to a and keeps those about one tile.
func (s *Server) Authority(a fence.Authority) fence.Authority {
	if s == nil {
		return a
	}
	return &authority{a, s}
}

type authority struct {
	fence.Authority
	server *Server
}

func (a *authority) Claim(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	called := a.server.log.now()
	g, err := a.Authority.Claim(ctx, c)
	a.claimed(Claim, &c, called, g, err)
	return g, err
}

func (a *authority) Promote(ctx context.Context, c fence.Claim) (fence.Grant, error) {
	called := a.server.log.now()
	g, err := a.Authority.Promote(ctx, c)
	a.claimed(Promote, &c, called, g, err)
	return g, err
}

func (a *authority) Lookup(ctx context.Context, id fence.TileID) (fence.Grant, error) {
	called := a.server.log.now()
	g, err := a.Authority.Lookup(ctx, id)
	a.server.put(Event{Kind: Lookup, Tile: id, Answer: Granted(g, err)}, called)
	return g, err
}

func (a *authority) Release(ctx context.Context, g fence.Grant) error {
	called := a.server.log.now()
	err := a.Authority.Release(ctx, g)
	a.server.put(Event{Kind: Release, Tile: g.Tile, Epoch: g.Epoch, Contact: a.server.other(g.Contact), ID: g.ID,
		Answer: Judge(err)}, called)
	return err
}

func (a *authority) claimed(kind Kind, c *fence.Claim, called int64, g fence.Grant, err error) {
	a.server.put(Event{Kind: kind, Tile: c.Tile, Contact: a.server.other(c.Contact), ID: c.ID, Expected: c.Expected,
		Floor: c.Floor, Answer: Granted(g, err)}, called)
}

// Granted is the answer to a call of an authority.
func Granted(g fence.Grant, err error) Answer {
	answer := Judge(err)
	if err == nil {
		answer.Grant = g
	}
	return answer
}

// other is a contact, or empty if it is the server's own.
func (s *Server) other(contact string) string {
	if contact == s.contact {
		return ""
	}
	return contact
}

// Store returns a store that passes every call on to st and keeps the writes.
func (s *Server) Store(st fence.Store) fence.Store {
	if s == nil {
		return st
	}
	return &store{st, s}
}

type store struct {
	fence.Store
	server *Server
}

func (s *store) Commit(ctx context.Context, c fence.Commit) (fence.Receipt, error) {
	called := s.server.log.now()
	r, err := s.Store.Commit(ctx, c)
	e := Event{Kind: Commit, Tile: c.Tile, Contact: s.server.other(c.Contact), Epoch: c.Epoch, Prev: c.Prev,
		Tick: c.Tick, Bytes: len(c.Payload), Replicas: c.Replicas, Install: c.Install, Refresh: c.Refresh(),
		Answer: Received(r, err)}
	if e.Next = e.At; e.At.IsZero() {
		e.Next = c.Next() // no receipt says it
	}
	if !e.Refresh {
		e.State = sum(c.Payload, c.Private)
	}
	s.server.put(e, called)
	return r, err
}

func (s *store) Rebase(ctx context.Context, b fence.Rebase) (fence.Receipt, error) {
	called := s.server.log.now()
	r, err := s.Store.Rebase(ctx, b)
	e := Event{Kind: Rebase, Tile: b.Tile, Contact: s.server.other(b.Contact), Epoch: b.Epoch, Next: b.Next(),
		Tick: b.Tick, State: sum(b.Blob, nil), Replicas: b.Replicas, Answer: Received(r, err)}
	if b.Replaces != nil {
		e.Prev, e.Replaces = *b.Replaces, true
	}
	s.server.put(e, called)
	return r, err
}

func (s *store) SaveSnapshot(ctx context.Context, w fence.SnapshotWrite) error {
	called := s.server.log.now()
	err := s.Store.SaveSnapshot(ctx, w)
	s.server.put(Event{Kind: Snapshot, Tile: w.Tile, Next: w.Position, Tick: w.Tick, State: sum(w.Blob, nil),
		Answer: Judge(err)}, called)
	return err
}

// Received is the answer to a write of a store.
func Received(r fence.Receipt, err error) Answer {
	answer := Judge(err)
	if err == nil {
		answer.receipt(r)
	}
	return answer
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum tells contents apart, at next to no cost: 31 bits of their length, and a CRC. It proves nothing; the chains do.
func sum(content, private []byte) uint64 {
	crc := crc32.Update(crc32.Update(0, castagnoli, content), castagnoli, private)
	return uint64(len(content)+len(private))<<32 | uint64(crc)
}
