package spec

import "github.com/tilefence/tilefence/internal/recovery"

// model is the protocol, but for one rule, and how far it is searched.
type model struct {
	without Rule
	journal bool // the tile writes through
	watcher bool
	bound   budget
}

// owners are the steps of a process.
func (m *model) owners(s *state, i uint8, emit func(action, state)) {
	p := &s.procs[i]
	does := func(what step, f func(n *state, p *proc)) {
		n := *s
		f(&n, &n.procs[i])
		emit(action{what, i, 0}, n)
	}
	if p.phase != idle && s.left.crashes > 0 {
		does(crash, func(n *state, p *proc) { n.left.crashes--; *p = proc{route: p.route} })
	}
	if p.route != s.master {
		does(reroute, func(n *state, p *proc) { p.route = n.master })
	}
	switch p.phase {
	case idle:
		does(look, func(n *state, p *proc) {
			*p = proc{phase: looked, route: p.route, saw: n.row.epoch}
			if m.without != MintedAbove {
				p.floor = n.nodes[p.route].log.epoch()
			}
		})
	case looked:
		if max(p.saw, p.floor) < m.bound.epochs {
			does(claim, func(n *state, p *proc) { m.claim(n, p, i) })
		}
	case claimed:
		if !m.journal {
			does(replays, func(n *state, p *proc) { m.replay(n, p) })
		} else if m.without == SealedBeforeRead {
			does(reads, func(n *state, p *proc) { p.phase, p.base = read, n.journal })
		} else {
			does(seals, func(n *state, p *proc) { m.sealJournal(n, p); p.base = n.journal })
		}
	case read:
		does(seals, func(n *state, p *proc) { m.sealJournal(n, p) })
	case sealed:
		does(replays, func(n *state, p *proc) { m.replay(n, p) })
	case ready, rebasing:
		m.present(s, i, emit)
	case installed:
		m.confirmInstall(s, i, does)
	case serving:
		m.serve(s, i, does, emit)
	}
}

func (m *model) claim(n *state, p *proc, i uint8) {
	if n.row.epoch != p.saw && m.without != GrantConditional {
		p.phase = idle
		return
	}
	p.epoch = max(p.saw, p.floor) + 1
	m.grant(n, grant{p.epoch, i})
	p.phase, p.pend, p.asInst, p.saw, p.floor = claimed, entryOf(p.epoch, i, 0), true, 0, 0
}

func (m *model) grant(n *state, g grant) {
	if n.left.restores > 0 && int(n.passed) < len(n.past) {
		n.past[n.passed] = n.row
		n.passed++
	}
	n.row = g
}

func (m *model) sealJournal(n *state, p *proc) {
	if n.seal > p.epoch && m.without != JournalFenced {
		p.phase = idle // asks the authority, and begins anew above what it was shown
		return
	}
	n.seal, p.phase = max(n.seal, p.epoch), sealed
}

// replay takes the state from the store, or from the journal where that goes further. What the store has is then
// replaced.
func (m *model) replay(n *state, p *proc) {
	from, base := n.nodes[p.route].log, p.base
	p.base = history{}
	switch {
	case from.epoch() >= p.epoch, m.journal && base.epoch() >= p.epoch, from.full(), base.full():
		p.phase = idle
	case m.journal && !from.extends(base) && !m.wentOn(from, base):
		p.phase, p.log, p.over = rebasing, base, from
	default:
		p.phase, p.log = ready, from
	}
}

// wentOn reports whether an owner has committed without what the journal has: then its state stands. An install alone,
// of an owner that died before it restored what is durable, is no sign of that.
func (m *model) wentOn(from, base history) bool {
	for _, e := range from.e[:from.n] {
		if e.epoch() > base.epoch() && e.serial() > 0 {
			return true
		}
	}
	return false
}

// present shows the pending batch to the node that the process takes for the master. Its answer comes, or is lost; or
// the request is late.
func (m *model) present(s *state, i uint8, emit func(action, state)) {
	p := &s.procs[i]
	r := request{there: true, to: p.route, prev: p.log, entry: p.pend,
		install: p.asInst || p.phase == ready || p.phase == rebasing, rebase: p.phase == rebasing, over: p.over}
	if p.log.full() {
		return
	}
	n := *s
	v := m.commit(&n.nodes[r.to], &r)
	lost := n
	m.answered(&n, i, v)
	emit(action{presents, i, uint8(v)}, n)
	if v == ok && lost.nodes != s.nodes {
		emit(action{losesAnswer, i, 0}, lost)
	}
	if s.left.late > 0 && !s.flight[i].there {
		n = *s
		n.left.late--
		n.flight[i] = r
		emit(action{late, i, 0}, n)
	}
}

// answered is what a process does with an answer.
func (m *model) answered(n *state, i uint8, v verdict) {
	p := &n.procs[i]
	switch {
	case v == behind && p.phase == rebasing && p.acked > 0:
		m.refusedRebase(n, i)
	case v != ok && p.phase != serving:
		m.refusedAcquiring(p)
	case v != ok:
		m.reconcile(n, i, v)
	case p.phase == ready, p.phase == rebasing:
		p.phase, p.rebased = installed, p.phase == rebasing
		p.log, p.pend = p.log.and(p.pend), 0
	case m.journal && m.without != JournalFirst:
		p.stored = true
	default:
		m.acknowledge(n, p)
	}
}

// refusedAcquiring begins anew, under another epoch, from what the store has.
func (m *model) refusedAcquiring(p *proc) { *p = proc{route: p.route} }

func (m *model) acknowledge(n *state, p *proc) {
	p.log, p.pend, p.asInst, p.stored = p.log.and(p.pend), 0, false, false
	p.acked = p.log.n
	if m.journal {
		n.through = p.log
	}
}

// confirmInstall presents an install, or a rebase, again, and serves once every copy has it, and the journal its base.
func (m *model) confirmInstall(s *state, i uint8, does func(step, func(*state, *proc))) {
	p := &s.procs[i]
	at := s.nodes[p.route]
	r := request{to: p.route, prev: p.log.first(p.log.n - 1), entry: p.log.last(), install: true, rebase: p.rebased,
		over: p.over}
	if m.commit(&at, &r) != ok {
		does(startsOver, func(_ *state, p *proc) { m.refusedAcquiring(p) })
		return
	}
	all := p.route == s.master && !s.stray
	alone := p.route == s.master && m.without == CopiesCounted
	if !all && !alone && m.without != InstallConfirmed {
		return
	}
	does(serves, func(n *state, p *proc) {
		n.nodes[p.route] = at
		if all {
			n.nodes[1-n.master] = at
		}
		if m.journal {
			if p.epoch < n.seal && m.without != JournalFenced {
				m.refusedAcquiring(p)
				return
			}
			n.journal = p.log
		}
		p.phase, p.acked, p.rebased, p.asInst, p.over = serving, p.log.n, false, false, history{}
		if all || alone {
			n.confirmed = p.log
		}
		if n.served[p.epoch] == 0 {
			n.served[p.epoch] = i + 1
		}
	})
}

// serve forms batches, presents them, and asks for confirmation.
func (m *model) serve(s *state, i uint8, does func(step, func(*state, *proc)), emit func(action, state)) {
	p := &s.procs[i]
	switch {
	case p.stored:
		does(journals, func(n *state, p *proc) { m.append(n, i) })
	case p.pend != 0:
		m.present(s, i, emit)
		if m.without == Immutable {
			does(abandons, func(_ *state, p *proc) { p.pend = 0 })
		}
	case p.serial < m.bound.batches && !p.log.full():
		does(forms, func(_ *state, p *proc) { p.serial++; p.pend = entryOf(p.epoch, i, p.serial) })
	}
	alone := m.without == CopiesCounted
	if p.pend == 0 && p.route == s.master && (!s.stray || alone) && m.same(s.nodes[p.route].log, p.log) &&
		s.confirmed != p.log {
		does(confirms, func(n *state, p *proc) {
			if !n.stray {
				n.nodes[1-n.master] = n.nodes[n.master]
			}
			n.confirmed = p.log
		})
	}
}

// append writes a batch that the store has to the journal, and acknowledges it.
func (m *model) append(n *state, i uint8) {
	p := &n.procs[i]
	switch {
	case p.epoch < n.seal && m.without != JournalFenced:
		m.reconcile(n, i, stale)
	case n.journal != p.log && n.journal != p.log.and(p.pend) && m.without != AppendFollows:
		m.recover(n, i, &recovery.Evidence{Event: recovery.JournalRestored})
	default:
		if n.journal != p.log.and(p.pend) && !n.journal.full() {
			n.journal = n.journal.and(p.pend)
		}
		m.acknowledge(n, p)
	}
}

// events are what an owner makes of the store's verdicts.
var events = map[verdict]recovery.Event{
	noowner: recovery.NoOwner, behind: recovery.Behind, replay: recovery.Replay, forked: recovery.Forked,
	stale: recovery.Stale,
}

// reconcile is what an owner does that was refused.
func (m *model) reconcile(n *state, i uint8, v verdict) {
	p, at := &n.procs[i], n.nodes[n.procs[i].route].log
	if v == noowner && m.without == AsksFirst {
		p.asInst = true
		return
	}
	p.stored = false
	e := &recovery.Evidence{Event: events[v], Kept: p.log.extends(at) || m.without == Reappends}
	if m.outlived(n, i) && m.without != LaterOwnerCounts {
		e.Later = recovery.LaterSeen
	} else if at.n > 0 && at.epoch() < p.epoch && at.last().owner() != i && !p.log.extends(at) {
		e.Earlier = m.earlier(recovery.EarlierSeen)
	}
	m.recover(n, i, e)
}

// outlived reports whether the node that a process takes for the master shows a later owner.
func (m *model) outlived(n *state, i uint8) bool {
	p, at := &n.procs[i], n.nodes[n.procs[i].route].log
	return at.epoch() > p.epoch || at.epoch() == p.epoch && at.last().owner() != i
}

// earlier is what is known of an owner from before, unless the model does without.
func (m *model) earlier(e recovery.Earlier) recovery.Earlier {
	if m.without == WhoWentOnCounts {
		return recovery.NoEarlier
	}
	return e
}

// recover carries out what an owner decides: package recovery is the code's own. An owner that stands down, and one
// that takes up what another has left, are both a process that begins anew from the store.
func (m *model) recover(n *state, i uint8, e *recovery.Evidence) {
	p := &n.procs[i]
	at := &n.nodes[p.route]
	for {
		switch a := recovery.Decide(e); a {
		case recovery.AskAuthority:
			e.Authority = m.record(n, i)
		case recovery.WatchLater:
			e.Later = recovery.LaterDead
			if last := at.log.last(); last.owner() != i && n.procs[last.owner()].phase == serving {
				e.Later = recovery.LaterServes
			}
		case recovery.AskCopies:
			e.Earlier = recovery.EarlierUnconfirmed
			if p.route == n.master && !n.stray && n.nodes[0] == n.nodes[1] {
				e.Earlier = recovery.EarlierServes
			}
		case recovery.Wait:
			return
		case recovery.StandDown, recovery.TakeUp, recovery.Fail:
			m.refusedAcquiring(p)
			return
		case recovery.InstallAnew:
			p.asInst = true
			return
		case recovery.Reappend:
			if m.without == Reappends {
				p.log = at.log
			} else {
				at.log, at.hash = p.log, true
			}
			return
		case recovery.Rebase:
			m.repair(n, i)
			return
		case recovery.ClaimAgain: // the same rebase, over what is there
			p.over = at.log
			return
		case recovery.WriteBase:
			n.journal, n.seal = p.log, max(n.seal, p.epoch)
			return
		default:
			panic("the model has no " + a.String())
		}
	}
}

// record is what the authority says of a process's grant.
func (m *model) record(n *state, i uint8) recovery.Authority {
	p := &n.procs[i]
	switch ours := n.row == (grant{p.epoch, i}); {
	case ours && m.without == LaterOwnerCounts && m.outlived(n, i):
		return recovery.Forgotten // it goes on from its own state
	case ours:
		return recovery.Ours
	case n.row.epoch < p.epoch:
		return recovery.Forgotten
	}
	return recovery.Superseded
}

// refusedRebase is for an owner whose rebase would replace what it has not named.
func (m *model) refusedRebase(n *state, i uint8) {
	e := &recovery.Evidence{Event: recovery.ClaimBehind}
	if p := &n.procs[i]; !p.log.extends(n.nodes[p.route].log) {
		e.Earlier = recovery.EarlierSeen
	}
	m.recover(n, i, e)
}

// repair mints above what was shown, and rebases on the state of this living owner.
func (m *model) repair(n *state, i uint8) {
	p := &n.procs[i]
	epoch := max(n.row.epoch, p.epoch, n.nodes[p.route].log.epoch()) + 1
	if epoch > m.bound.epochs || p.log.full() {
		return // out of bounds: it stays as it is
	}
	m.grant(n, grant{epoch, i})
	*p = proc{phase: rebasing, route: p.route, epoch: epoch, log: p.log, over: n.nodes[p.route].log, acked: p.acked,
		asInst: true, pend: entryOf(epoch, i, 0), serial: p.serial}
	if m.journal {
		m.sealJournal(n, p)
		if p.phase == sealed {
			p.phase = rebasing
		}
	}
}
