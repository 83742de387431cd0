package match

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/wait"
)

// Lobby is where players come in: it creates, reads, follows and cancels tickets. Its methods may be called
// from any goroutine, and any number of processes may have one.
type Lobby struct {
	store  Store
	queues map[string]Queue
	mu     sync.Mutex
	feeds  map[string]*feed // by shard
	count  int              // of followers
}

// NewLobby returns a lobby for these queues. It does no I/O. Errors: a *fence.ArgumentError.
func NewLobby(store Store, queues ...Queue) (*Lobby, error) {
	if store == nil {
		return nil, &fence.ArgumentError{Field: "store", Value: nil, Want: "a back end, such as memmatch.New()"}
	}
	byName, err := checkQueues(queues)
	if err != nil {
		return nil, err
	}
	return &Lobby{store: store, queues: byName, feeds: make(map[string]*feed)}, nil
}

// Queues are the names of the lobby's queues, in order.
func (l *Lobby) Queues() []string { return slices.Sorted(maps.Keys(l.queues)) }

// Enqueue creates a ticket. When it returns nil the ticket can be read, and a repeated call with the same ticket
// returns it as it is. After a *fence.StoreError it is not known whether the ticket exists: call again with the same
// ticket. Other errors: ErrReused; an *OpenError, if a player of it has an open ticket; ErrCrowded, if the
// queue has no room for it; a *fence.ArgumentError for a ticket that the queue could never match.
func (l *Lobby) Enqueue(ctx context.Context, queue string, t Ticket) (Status, error) {
	q, err := l.queue(queue)
	if err != nil {
		return Status{}, err
	}
	if err := q.check(t); err != nil {
		return Status{}, err
	}
	homes := q.homes(t.ID)
	if q.Shards == 1 {
		return l.store.Enqueue(ctx, homes[0], t, q.entry())
	}
	for _, home := range homes { // it may be there, in one of before the queue was split, too
		if _, err := l.store.Status(ctx, home, t.ID); err == nil {
			return l.store.Enqueue(ctx, home, t, q.entry())
		} else if !errors.Is(err, ErrUnknown) {
			return Status{}, err
		}
	}
	return l.enqueue(ctx, q, homes[0], t)
}

// Status reads a ticket. Status.Why explains why it was not matched. Errors: ErrUnknown, a *fence.StoreError, a
// *fence.ArgumentError for a queue that the lobby does not have.
func (l *Lobby) Status(ctx context.Context, queue, ticket string) (Status, error) {
	return l.find(queue, ticket, func(shard string) (Status, error) { return l.store.Status(ctx, shard, ticket) })
}

// Cancel ends a ticket, whatever its state, and returns it. If it was seated, the seat goes back when its hold ends,
// and the others of its match are not notified; the tile sees that a player does not come. Errors: as Status.
func (l *Lobby) Cancel(ctx context.Context, queue, ticket string) (Status, error) {
	return l.find(queue, ticket, func(shard string) (Status, error) { return l.store.Cancel(ctx, shard, ticket) })
}

// List returns up to limit tickets of each of the queue's shards that wait or are claimed, those that wait longest
// first. Errors: as Status.
func (l *Lobby) List(ctx context.Context, queue string, limit int) ([]Status, error) {
	q, err := l.queue(queue)
	if err != nil {
		return nil, err
	}
	var all []Status
	for _, s := range q.shards() {
		list, err := l.store.List(ctx, s, limit)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	return all, nil
}

// Depth counts the queue's tickets. The shards are read one after the other. Errors: as Status.
func (l *Lobby) Depth(ctx context.Context, queue string) (Depth, error) {
	q, err := l.queue(queue)
	if err != nil {
		return Depth{}, err
	}
	var sum Depth
	for _, s := range q.shards() {
		d, err := l.store.Depth(ctx, s)
		if err != nil {
			return Depth{}, err
		}
		sum = sum.Add(d)
	}
	return sum, nil
}

func (l *Lobby) queue(name string) (Queue, error) {
	q, ok := l.queues[name]
	if !ok {
		return Queue{}, &fence.ArgumentError{Field: "queue", Value: name, Want: "the name of a Queue of this Lobby"}
	}
	return q, nil
}

// find asks the shards that may have a ticket.
func (l *Lobby) find(queue, ticket string, ask func(shard string) (Status, error)) (s Status, err error) {
	q, err := l.queue(queue)
	if err != nil {
		return Status{}, err
	}
	if !nameForm.MatchString(ticket) {
		return Status{}, &fence.ArgumentError{Field: "ticket", Value: ticket, Want: nameWant}
	}
	for _, shard := range q.homes(ticket) {
		if s, err = ask(shard); !errors.Is(err, ErrUnknown) {
			return s, err
		}
	}
	return s, err
}

// watchInterval is how often a followed ticket is read without a notice, in case the notice was lost.
const watchInterval = time.Second

// Bounds of followers. Each of them reads the store once a second.
const (
	perPlayer    = 4       // of a ticket, for each player of it: some may be connections that are dead already
	maxFollowers = 1 << 14 // of a Lobby
	fewLeft      = 64      // a ticket has no more than this part of the places that are left
)

// Watch follows a ticket: it calls f with its status now and after every change of State, on the caller's goroutine,
// until the state is terminal (nil) or f returns false (nil) or ctx ends (its error). States that follow
// each other quickly may be seen as one; Waiting and Claimed are reported as they are found. Any number of
// tickets of a shard share one subscription. Errors: as Status, of the first read; later failures are tried again.
//
// A ticket has four followers for each of its players, less if the lobby has some 16,000 in all, and at least one. One
// that is too many takes the place of the ticket's oldest, whose Watch returns ErrCrowded: a player who comes back
// is not kept out by a connection that is dead. If the lobby has no place left the error is ErrCrowded too.
func (l *Lobby) Watch(ctx context.Context, queue, ticket string, f func(Status) bool) error {
	s, err := l.Status(ctx, queue, ticket)
	if err != nil {
		return err
	}
	shard := s.Shard
	me, err := l.follow(shard, ticket, perPlayer*max(1, len(s.Ticket.Players)))
	if err != nil {
		return err
	}
	defer l.unfollow(me)
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	var last Status
	for {
		if s, err = l.store.Status(ctx, shard, ticket); err == nil && (s.State != last.State || s.Match != last.Match ||
			s.Why.Reason != last.Why.Reason) {
			last = s
			if !f(s) || s.State.Terminal() {
				return nil
			}
		} else if errors.Is(err, ErrUnknown) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-me.replaced:
			return &DeniedError{ErrCrowded, fmt.Sprintf("followers of ticket %s: the limit is %d", ticket, me.limit)}
		case <-me.notices:
		case <-tick.C:
		}
	}
}

// feed is the one subscription to a shard's changes, for all watchers.
type feed struct {
	watchers map[string][]*follower // by ticket, oldest first
	cancel   context.CancelFunc
}

// follower is one Watch.
type follower struct {
	shard, ticket string
	notices       chan struct{} // has an element after each change of the ticket
	replaced      chan struct{} // closed when a newer follower has taken the place
	limit         int           // of the ticket then
}

// follow adds a follower to a ticket that has at most so many, and fewer when few places are left.
func (l *Lobby) follow(shard, ticket string, most int) (*follower, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	limit := max(1, min(most, (maxFollowers-l.count)/fewLeft))
	f := l.feeds[shard]
	if f != nil {
		for len(f.watchers[ticket]) >= limit {
			oldest := f.watchers[ticket][0]
			oldest.limit = limit
			close(oldest.replaced)
			l.remove(f, oldest)
		}
	}
	if l.count >= maxFollowers {
		return nil, &DeniedError{ErrCrowded, fmt.Sprintf("followers: %d, the limit is %d", l.count, maxFollowers)}
	}
	if f == nil {
		ctx, cancel := context.WithCancel(context.Background())
		f = &feed{watchers: make(map[string][]*follower), cancel: cancel}
		l.feeds[shard] = f
		go l.feed(ctx, shard, f)
	}
	me := &follower{shard: shard, ticket: ticket, notices: make(chan struct{}, 1), replaced: make(chan struct{})}
	f.watchers[ticket] = append(f.watchers[ticket], me)
	l.count++
	return me, nil
}

// remove takes a follower out of a feed. It may be out already. The mutex is held.
func (l *Lobby) remove(f *feed, me *follower) {
	i := slices.Index(f.watchers[me.ticket], me)
	if i < 0 {
		return
	}
	f.watchers[me.ticket] = slices.Delete(f.watchers[me.ticket], i, i+1)
	if len(f.watchers[me.ticket]) == 0 {
		delete(f.watchers, me.ticket)
	}
	l.count--
}

// unfollow ends what follow began, and the feed of the last follower of a shard.
func (l *Lobby) unfollow(me *follower) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.feeds[me.shard]
	if f == nil {
		return
	}
	l.remove(f, me)
	if len(f.watchers) == 0 {
		f.cancel()
		delete(l.feeds, me.shard)
	}
}

// feed passes a shard's changes to its watchers until the last has left.
func (l *Lobby) feed(ctx context.Context, shard string, f *feed) {
	notify := func(tickets []string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, t := range tickets {
			for _, w := range f.watchers[t] {
				wait.Wake(w.notices)
			}
		}
	}
	all := func() { // changes before the subscription was in force
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, all := range f.watchers {
			for _, w := range all {
				wait.Wake(w.notices)
			}
		}
	}
	for ctx.Err() == nil {
		_ = l.store.Changes(ctx, shard, all, notify) // watchers read every second meanwhile
		wait.For(ctx, retryInterval)
	}
}

// retryInterval is the least time between two tries of a failed call.
const retryInterval = 50 * time.Millisecond
