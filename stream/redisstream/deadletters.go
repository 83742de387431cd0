package redisstream

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/guard"
	"github.com/tilefence/tilefence/internal/redislib"
	"github.com/tilefence/tilefence/stream"
)

// maxDeadLetters is how many dead letters a tile keeps.
const maxDeadLetters = 1000

// DeadLetter implements stream.Log.
func (l *Log) DeadLetter(ctx context.Context, p stream.Poison) error {
	if err := guard.Call(ctx, "dead letter", p.Tile); err != nil {
		return err
	}
	body, err := json.Marshal(encodeLetter(&p))
	if err != nil {
		return &fence.ArgumentError{Field: "poison", Value: p.Seq, Want: "something JSON can hold: " + err.Error()}
	}
	key := l.functions.World().Keys(p.Tile).Dead
	err = l.client.XAdd(ctx, &redis.XAddArgs{Stream: key, MaxLen: maxDeadLetters, Values: []any{"letter", body}}).Err()
	if err = redislib.ExplainOne(ctx, l.client, p.Tile, err, key); errors.Is(err, fence.ErrCorrupt) {
		return err
	}
	if err != nil {
		return &fence.StoreError{Op: "dead letter", Tile: p.Tile, Outcome: fence.ErrUnknownOutcome, Err: err}
	}
	return nil
}

// DeadLetters implements stream.Log.
func (l *Log) DeadLetters(ctx context.Context, tile fence.TileID) ([]stream.Poison, error) {
	if err := guard.Call(ctx, "read dead letters", tile); err != nil {
		return nil, err
	}
	key := l.functions.World().Keys(tile).Dead
	read := l.client.XRange(ctx, key, "-", "+")
	if err := l.explainOne(ctx, "read dead letters", readOf(tile, keyed{key, read})); err != nil {
		return nil, err
	}
	messages := read.Val()
	var letters []stream.Poison
	var bad error
	for _, m := range messages {
		s, _ := m.Values["letter"].(string)
		var d deadLetter
		if err := json.Unmarshal([]byte(s), &d); err != nil {
			bad = errors.Join(bad, &fence.CorruptError{Tile: tile, What: "dead letter " + m.ID, Detail: err.Error()})
			continue
		}
		letter := d.decode(tile)
		letter.Letter = m.ID
		letters = append(letters, letter)
	}
	return letters, bad
}

// RemoveDeadLetter implements stream.Log.
func (l *Log) RemoveDeadLetter(ctx context.Context, tile fence.TileID, letter string) (bool, error) {
	if err := guard.Call(ctx, "remove dead letter", tile); err != nil {
		return false, err
	}
	n, err := l.client.XDel(ctx, l.functions.World().Keys(tile).Dead, letter).Result()
	if err != nil {
		return false, &fence.StoreError{Op: "remove dead letter", Tile: tile, Outcome: fence.ErrUnknownOutcome,
			Err: err}
	}
	return n > 0, nil
}

// deadLetter is how a poison entry is stored. What was in the entry may be any bytes, which JSON text
// cannot hold: it is base64.
type deadLetter struct {
	Seq    fence.Seq   `json:"seq"`
	Epoch  fence.Epoch `json:"epoch"`
	Fields []field     `json:"fields"`
	Reason string      `json:"reason"`
}

type field struct {
	Name  []byte `json:"name"`
	Value []byte `json:"value"`
}

func encodeLetter(p *stream.Poison) deadLetter {
	d := deadLetter{Seq: p.Seq, Epoch: p.Epoch, Reason: p.Reason, Fields: make([]field, 0, len(p.Fields))}
	for name, value := range p.Fields {
		d.Fields = append(d.Fields, field{[]byte(name), []byte(value)})
	}
	return d
}

func (d *deadLetter) decode(tile fence.TileID) stream.Poison {
	p := stream.Poison{Tile: tile, Seq: d.Seq, Epoch: d.Epoch, Reason: d.Reason, Fields: map[string]string{}}
	for _, f := range d.Fields {
		p.Fields[string(f.Name)] = string(f.Value)
	}
	return p
}
