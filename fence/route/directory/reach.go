package directory

import (
	"context"
	"encoding/json"
	"time"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/directorystore"
	"github.com/tilefence/tilefence/internal/wait"
)

// listenAgain is how long after a subscription was lost it is made anew.
const listenAgain = 200 * time.Millisecond

// letter is what processes post to each other, as JSON: a message for the sessions of a player, or that they are to
// end.
type letter struct {
	Kind    string `json:"kind"` // tell or end; another one is ignored
	Actor   string `json:"actor"`
	Message []byte `json:"message,omitempty"`
}

// Tell hands a message to the sessions of a player, wherever they are. It returns how many processes with sessions of
// the player have taken it; 0: the player is not connected. A session that is read too slowly loses it all the same.
// Errors: a *fence.ArgumentError; a *fence.StoreError if no process is known to have taken it.
func (d *Directory) Tell(ctx context.Context, actor string, message []byte) (processes int, err error) {
	if len(message) > directorystore.MaxMessage {
		return 0, &fence.ArgumentError{Field: "message", Value: len(message), Want: "at most 8192 bytes"}
	}
	r, err := d.look(ctx, actor)
	if err != nil {
		return 0, err
	}
	return d.reach(ctx, r.Holders, letter{"tell", actor, message})
}

// End ends the sessions that a player has anywhere, and returns how many processes with some it has reached. The others
// end theirs when they renew their leases, within 10 s. It does not keep the player out: first make the authentication
// refuse. Errors: as those of Tell. After any but a *fence.ArgumentError, call it again.
func (d *Directory) End(ctx context.Context, actor string) (processes int, err error) {
	if err := directorystore.Validate(actor); err != nil {
		return 0, err
	}
	r, err := d.store.End(ctx, actor)
	if err != nil {
		return 0, err
	}
	return d.reach(ctx, r.Holders, letter{Kind: "end", Actor: actor})
}

// reach has processes do what a letter says, and returns how many have it.
func (d *Directory) reach(ctx context.Context, holders []string, l letter) (reached int, err error) {
	b, err := json.Marshal(l)
	if err != nil { // a struct of strings
		panic(err)
	}
	for _, holder := range holders {
		if holder == d.name {
			reached++
			d.hear(b)
			continue
		}
		listens, failed := d.store.Post(ctx, holder, b)
		if listens {
			reached++
		}
		if failed != nil {
			err = failed
		}
	}
	if reached > 0 {
		return reached, nil
	}
	return 0, err
}

// listen takes letters until ctx ends.
func (d *Directory) listen(ctx context.Context) {
	for ctx.Err() == nil {
		d.failed("messages for this process are not heard", d.store.Listen(ctx, d.name, func() {}, d.hear))
		wait.For(ctx, listenAgain)
	}
}

// hear does what a letter says.
func (d *Directory) hear(b []byte) {
	var l letter
	switch err := json.Unmarshal(b, &l); {
	case err != nil:
	case l.Kind == "end":
		d.end(l.Actor)
	case l.Kind == "tell" && d.cfg.Tell != nil:
		d.cfg.Tell(l.Actor, l.Message)
	}
}
