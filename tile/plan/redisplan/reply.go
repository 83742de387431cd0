package redisplan

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile/plan"
)

func failed(op string, tile fence.TileID, err error) error {
	return &fence.StoreError{Op: "plan " + op, Tile: tile, Outcome: fence.ErrUnknownOutcome, Err: err}
}

// codeError is a reply that is neither ok nor a complaint about arguments.
type codeError struct {
	code   string
	detail string
}

func (e *codeError) Error() string { return e.code + " " + e.detail }

// read takes a reply apart.
func read(op string, tile fence.TileID, c *call, cmd *redis.Cmd) (reply, error) {
	list, err := cmd.Slice()
	if err != nil {
		return reply{}, failed(op, tile, err)
	}
	r := reply{v: list}
	switch code := r.text(); {
	case code == "ok" && !r.bad:
		return r, nil
	case code == "invalid":
		return reply{}, &fence.ArgumentError{Field: r.text(), Value: code, Want: "what lua/ says of " + c.function}
	default:
		return reply{}, &codeError{code, r.text()}
	}
}

// reply reads values one after the other; after anything unreadable bad is set.
type reply struct {
	v   []any
	bad bool
}

func (r *reply) next() any {
	if len(r.v) == 0 {
		r.bad = true
		return nil
	}
	v := r.v[0]
	r.v = r.v[1:]
	return v
}

func (r *reply) text() string {
	s, ok := r.next().(string)
	r.bad = r.bad || !ok
	return s
}

// number reads an integer, or one as text.
func (r *reply) number() int {
	switch v := r.next().(type) {
	case int64:
		return int(v)
	case string:
		n, err := strconv.Atoi(v)
		r.bad = r.bad || err != nil
		return n
	}
	r.bad = true
	return 0
}

func (r *reply) list() reply {
	v, ok := r.next().([]any)
	r.bad = r.bad || !ok
	return reply{v: v}
}

func (r *reply) tile() fence.TileID {
	id, err := fence.ParseTileID(r.text())
	r.bad = r.bad || err != nil
	return id
}

// requests reads what view in prelude.lua writes.
func (r *reply) requests() []plan.Request {
	in := r.list()
	if len(in.v) == 0 {
		return nil
	}
	all := make([]plan.Request, 0, len(in.v)/10)
	for len(in.v) > 0 && !in.bad {
		all = append(all, plan.Request{ID: in.text(), Tile: in.tile(), Entity: in.text(), Requester: in.text(),
			Tier: plan.Tier(in.number()), Words: in.text(), Epoch: fence.Epoch(in.number()), Attempt: in.number(),
			Age: time.Duration(in.number()) * time.Millisecond, Running: in.number() == 1})
	}
	r.bad = r.bad || in.bad
	return all
}

// done is the error of a reply that could not be read.
func (r *reply) done(op string, tile fence.TileID) error {
	if r.bad {
		return failed(op, tile, errors.New("unreadable reply"))
	}
	return nil
}

// turn reads the reply to a turn.
func (r *reply) turn(t *plan.Turn) (out plan.TurnReply) {
	out.InStore = r.number()
	asked, answers := r.list(), r.list()
	for len(asked.v) > 0 && !asked.bad {
		out.Asked = append(out.Asked, plan.AskReply{Taken: asked.number() == 1, ID: asked.text()})
	}
	for len(answers.v) > 0 && !answers.bad {
		a := plan.Answer{Entity: answers.text(), ID: answers.text(), Kind: plan.AnswerKind(answers.number())}
		body, model := answers.text(), answers.text()
		used := plan.Usage{Model: model, Input: int64(answers.number()), Output: int64(answers.number()),
			Cached: int64(answers.number())}
		if a.Kind == plan.Planned {
			a.Body, a.Usage = []byte(body), used
		}
		out.Answers = append(out.Answers, a)
	}
	out.Listed = r.requests()
	r.bad = r.bad || asked.bad || answers.bad || len(out.Asked) != len(t.Ask)
	if err := r.done("turn", t.Tile); err != nil {
		return plan.TurnReply{Err: err}
	}
	return out
}

// event reads one entry of the usage stream.
func (r *reply) event() (e plan.UsageEvent) {
	e.Position = r.text()
	fields := r.list()
	by := map[string]string{}
	for len(fields.v) > 0 && !fields.bad {
		name := fields.text()
		by[name] = fields.text()
	}
	r.bad = r.bad || fields.bad
	number := func(field string) int64 {
		n, err := strconv.ParseInt(by[field], 10, 64)
		r.bad = r.bad || err != nil
		return n
	}
	tile, err := fence.ParseTileID(by["t"])
	r.bad = r.bad || err != nil
	e.Request, e.Tile, e.Entity, e.Requester = by["r"], tile, by["e"], by["p"]
	e.Usage = plan.Usage{Model: by["m"], Input: number("i"), Output: number("o"), Cached: number("c")}
	e.At = time.UnixMilli(number("at"))
	return e
}

// ms is a duration as the functions take it: whole milliseconds, at least one of any that is not zero.
func ms(d time.Duration) string {
	return fmt.Sprint((d + time.Millisecond - 1).Milliseconds())
}
