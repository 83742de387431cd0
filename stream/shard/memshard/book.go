package memshard

import (
	"slices"
	"time"

	"github.com/tilefence/tilefence/stream/shard"
)

// book is one group. It is the specification of the Lua script of redisshard, which has the same steps.
type book struct {
	digest  string // of the ranges; empty if there was no holder yet
	shards  []entry
	holders map[string]*holder
	token   shard.Token // the last granted
	settled time.Time   // before it, free shards are not granted
	heard   time.Time   // when a holder was last heard
}

// entry is one shard.
type entry struct {
	holder string      // empty: free
	token  shard.Token // of the last lease
	asked  bool        // the holder is to give it back
}

type state uint8

const (
	sharing state = iota + 1
	revived       // sharing, but lives on a TTL that it was given without being heard
	leaving       // wants no shards; also a holder that has left, until its TTL is over
)

type holder struct {
	expires time.Time
	beat    uint64
	state   state
}

func (b *book) sync(now time.Time, r *shard.Request) (shard.Reply, error) {
	if me := b.holders[r.Holder]; me != nil && r.Beat < me.beat {
		return shard.Reply{}, shard.ErrLate
	}
	b.setBack(now)
	b.expire(now, r.TTL)
	if err := b.agree(now, r); err != nil {
		return shard.Reply{}, err
	}
	if b.holders[r.Holder] == nil && len(b.holders) >= shard.MaxHolders {
		return shard.Reply{}, shard.ErrFull
	}
	me := &holder{expires: now.Add(r.TTL), beat: r.Beat, state: sharing}
	if r.Leaving {
		me.state = leaving
	}
	b.holders[r.Holder] = me
	for _, s := range r.Release {
		if e := &b.shards[s]; e.holder == r.Holder {
			e.holder, e.asked = "", false
		}
	}
	for _, l := range r.Held {
		if e := &b.shards[l.Shard]; e.holder == "" && l.Token >= e.token {
			e.holder, e.token = r.Holder, l.Token
			b.token = max(b.token, l.Token)
		}
	}
	return b.balance(now, r), nil
}

// setBack follows a clock that was put back, so that no lease outlives its holder by as much.
func (b *book) setBack(now time.Time) {
	by := b.heard.Sub(now)
	if by <= 0 {
		return
	}
	b.heard, b.settled = now, b.settled.Add(-by)
	for _, h := range b.holders {
		h.expires = h.expires.Add(-by)
	}
}

// expire strikes off who was not heard for his TTL. But if nobody was heard for half a TTL, it is the store
// that was away: then all are given a whole one, unless that is what they live on already.
func (b *book) expire(now time.Time, ttl time.Duration) {
	away := now.Sub(b.heard) > ttl/2
	b.heard = now
	for name, h := range b.holders {
		if away && h.state == sharing {
			h.state = revived
			if until := now.Add(ttl); until.After(h.expires) {
				h.expires = until
			}
		}
		if h.expires.After(now) {
			continue
		}
		delete(b.holders, name)
		for i := range b.shards {
			if e := &b.shards[i]; e.holder == name {
				e.holder, e.asked = "", false
			}
		}
	}
}

// agree compares the ranges. A group without holders takes new ones.
func (b *book) agree(now time.Time, r *shard.Request) error {
	digest := r.Ranges.Digest()
	if b.digest == digest {
		return nil
	}
	for name, h := range b.holders {
		if h.state != leaving || b.holds(name) {
			return &shard.RangesError{Group: r.Group, Holder: r.Holder, Digest: digest, Shards: r.Ranges.Len(),
				Current: b.digest, CurrentShards: len(b.shards)}
		}
	}
	if b.digest == "" && len(r.Held) > 0 {
		b.settled = now.Add(r.TTL)
	}
	b.digest, b.shards = digest, make([]entry, r.Ranges.Len())
	return nil
}

func (b *book) holds(name string) bool {
	return slices.ContainsFunc(b.shards, func(e entry) bool { return e.holder == name })
}

// count is how many shards a holder has that it is not to give back.
func (b *book) count(name string) (n int) {
	for i := range b.shards {
		if e := &b.shards[i]; e.holder == name && !e.asked {
			n++
		}
	}
	return n
}

// balance settles the share of the requester, asks for what is above and grants what is below.
func (b *book) balance(now time.Time, r *shard.Request) shard.Reply {
	reply := shard.Reply{}
	for _, h := range b.holders {
		if h.state != leaving {
			reply.Holders++
		}
	}
	mine := b.count(r.Holder)
	if !r.Leaving {
		reply.Share = b.share(mine, reply.Holders)
	}
	for i := len(b.shards) - 1; i >= 0 && mine > reply.Share; i-- {
		if e := &b.shards[i]; e.holder == r.Holder && !e.asked {
			e.asked = true
			mine--
		}
	}
	for i := range b.shards {
		e := &b.shards[i]
		if e.holder == "" && mine < reply.Share && !now.Before(b.settled) {
			b.token++
			e.holder, e.token = r.Holder, b.token
			mine++
		}
		switch e.holder {
		case "":
			reply.Free++
		case r.Holder:
			reply.Held = append(reply.Held, shard.Grant{Lease: shard.Lease{Shard: i, Token: e.token}, GiveBack: e.asked})
		}
	}
	return reply
}

// share is how many shards a holder may have that has mine now: the average, rounded up for as many holders
// as it takes to place all shards, first come first served, and down for the others.
func (b *book) share(mine, holders int) int {
	low, more := len(b.shards)/holders, len(b.shards)%holders
	above := 0
	for other, h := range b.holders {
		if h.state != leaving && b.count(other) > low {
			above++
		}
	}
	if mine > low && above <= more || mine <= low && above < more {
		return low + 1
	}
	return low
}
