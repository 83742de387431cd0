package natsfanout

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/time/rate"

	"github.com/tilefence/tilefence/fence"
)

// worldSubject is the name of the subject on which the processes of a world are asked for its ID. They answer on a
// subject below it. It is part of the wire contract (docs/wire.md).
const worldSubject = "tilefence.world"

const (
	worldWindow  = 200 * time.Millisecond // for the answers: many round trips
	worldAnswers = 64                     // that may wait to be read; each world answers once
	noResponders = "503"                  // status of the server's own answer: nothing subscribes to the subject
)

// identity is what a Fanout knows of its world.
type identity struct {
	window time.Duration // for answers

	mu sync.Mutex
	id fence.WorldID // zero: not known

	denied     atomic.Pointer[fence.SettingError] // why the last question was not asked
	badAnswers atomic.Uint64
	badLines   rate.Sometimes
}

// EnterWorld implements fence.WorldKeeper as far as that can be done without a record: it asks the processes that run
// now. A Fanout that knows its ID, from [Config.World] or from the first call whose w passed, answers with it;
// processes of one ID answer once together. The answers of 200 ms count. A *fence.WorldError if this Fanout, or one
// that answers, is of another known ID, or the name is another. An answer that cannot be read is ignored and counted.
//
// The ID returned is that of this Fanout: what others answer refuses a process, and teaches it nothing. If the server
// forbids the question, the ID is not compared, and Check says so.
func (f *Fanout) EnterWorld(ctx context.Context, w fence.World) (fence.World, error) {
	own, err := f.compare(w)
	if err != nil || w.ID.IsZero() {
		return own, err
	}
	if err := f.ask(ctx, w); err != nil {
		return fence.World{}, err
	}
	if err := f.adopt(w.ID); err != nil {
		return fence.World{}, notAsked(err)
	}
	return f.compare(w) // another call may have been faster
}

// compare returns the world of the Fanout, or the *fence.WorldError if w is another.
func (f *Fanout) compare(w fence.World) (fence.World, error) {
	f.world.mu.Lock()
	own := fence.World{Name: f.cfg.World.Name, ID: f.world.id}
	f.world.mu.Unlock()
	if err := w.Compare("the NATS fan-out", "natsfanout.Config.World of this process", own); err != nil {
		return fence.World{}, err
	}
	return own, nil
}

// adopt takes the ID of its world, and answers with it from now on. Only the first ID counts.
func (f *Fanout) adopt(id fence.WorldID) error {
	f.world.mu.Lock()
	defer f.world.mu.Unlock()
	if !f.world.id.IsZero() || id.IsZero() {
		return nil
	}
	answer := []byte(id.String())
	// One of a queue group gets the question: so a world answers once, however many processes it has.
	_, err := f.conn.QueueSubscribe(f.prefix+worldSubject, id.String(), func(m *nats.Msg) {
		if strings.HasPrefix(m.Reply, f.prefix+worldSubject+".") { // the question must not choose any other subject
			_ = f.conn.Publish(m.Reply, answer) // a lost answer is asked for again
		}
	})
	if err == nil {
		f.world.id = id
	}
	return err
}

func notAsked(err error) error {
	return &fence.StoreError{Op: "enter world", Outcome: fence.ErrNotApplied, Err: err}
}

// ask asks the processes on the servers for their world. A *fence.WorldError if one is of another than w, a
// *fence.StoreError if they cannot be asked.
func (f *Fanout) ask(ctx context.Context, w fence.World) error {
	if !f.conn.IsConnected() {
		return notAsked(errNotConnected)
	}
	answers := make(chan *nats.Msg, worldAnswers)
	subject := f.prefix + worldSubject
	inbox := subject + "." + rand.Text()
	connection, before := f.conn.Stats().Reconnects, f.conn.LastError()
	sub, err := f.conn.ChanSubscribe(inbox, answers)
	if err != nil {
		return notAsked(err)
	}
	defer func() { _ = sub.Unsubscribe() }() // its errors are that it is closed already
	if err = f.conn.PublishRequest(subject, inbox, nil); err == nil {
		err = f.flush(ctx)
	}
	if err != nil {
		return notAsked(err)
	}
	if f.forbidden(before, subject, inbox) {
		return nil
	}
	if err := f.collect(ctx, w, answers); err != nil {
		return err
	}
	if f.conn.Stats().Reconnects != connection {
		return notAsked(errors.New("the connection to NATS was replaced meanwhile"))
	}
	return nil
}

// forbidden reports whether the server has refused the question or the subscription to its answers, and keeps that for
// Check.
func (f *Fanout) forbidden(before error, subject, inbox string) bool {
	err := f.refusal(before, inbox)
	if err == nil {
		err = f.refusal(before, subject)
	}
	if err == nil || f.mayNotAnswer(err) {
		f.world.denied.Store(nil)
		return false
	}
	f.world.denied.Store(&fence.SettingError{Node: "NATS server " + f.conn.ConnectedUrlRedacted(),
		Setting: "the user's permissions", Value: err.Error(),
		Detail: "another deployment of the world's name would not be noticed; let the user " +
			"publish to " + subject + " and subscribe to " + subject + ".*, as the users in deploy/nats may"})
	return true
}

// collect compares w with the answers of worldWindow. The server's own word that there will be none ends it.
func (f *Fanout) collect(ctx context.Context, w fence.World, answers <-chan *nats.Msg) error {
	end := time.NewTimer(f.world.window)
	defer end.Stop()
	for {
		select {
		case <-ctx.Done():
			return notAsked(context.Cause(ctx))
		case <-end.C:
			return nil
		case m := <-answers:
			if len(m.Data) == 0 && m.Header.Get("Status") == noResponders {
				return nil
			}
			id, err := fence.ParseWorldID(string(m.Data))
			if err != nil {
				f.world.badAnswers.Add(1)
				f.world.badLines.Do(func() { // what it says is not repeated: it may be anything
					f.cfg.Logger.Warn("an answer about the world of a process on NATS cannot be read; it is ignored",
						"bytes", len(m.Data))
				})
				continue
			}
			found := fence.World{Name: f.cfg.World.Name, ID: id}
			err = w.Compare("NATS at "+f.conn.ConnectedUrlRedacted(),
				"the processes that answer on subject "+f.prefix+worldSubject, found)
			if err != nil {
				return err
			}
		}
	}
}

// mayNotAnswer reports whether an error says that the user may not subscribe to questions about the world. It leaves
// the answer to others, as a process that may only read leaves a record.
func (f *Fanout) mayNotAnswer(err error) bool {
	return errors.Is(err, nats.ErrPermissionViolation) &&
		strings.Contains(err.Error(), `Subscription to "`+f.prefix+worldSubject+`"`)
}
