package gatewayws

import "encoding/json"

// What the tests of the codec look at.
var Describe = describe

// Untold is how many messages wait for the client that has read least.
func (h *Handler) Untold() (most int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for s := range h.sessions {
		s.outbox.mu.Lock()
		most = max(most, s.outbox.waiting.told+s.outbox.taken.told)
		s.outbox.mu.Unlock()
	}
	return most
}

// TellAfterTheEnd tells a session that has ended something.
func TellAfterTheEnd() bool {
	s := &conn{}
	s.outbox.close()
	return s.tell(nil)
}

// DecodeAnswer reads an answer.
func DecodeAnswer(b []byte) (id string, a Answer, err error) {
	id, a, _, err = decodeAnswer(b)
	return id, a, err
}

// DecodeIntent returns what a frame holds as a Request, and its id.
func DecodeIntent(b []byte) (string, Request, error) {
	f, err := decodeIntent(b)
	return f.ID, Request{Tile: f.Tile, Kind: f.Kind, Body: f.Body, Action: f.Action, Asset: f.Asset, Cost: f.Cost,
		Move: f.Move}, err
}

// Plain reads a frame as a Client writes it, and if it is one, as encoding/json does too.
func Plain(b []byte) (read, want any, plain bool) {
	f, plain := plainIntent(b)
	var g intentFrame
	if plain && json.Unmarshal(b, &g) != nil {
		return f, nil, plain
	}
	return f, g, plain
}

// AppendAnswer writes the frame of an answer, and as encoding/json does.
func AppendAnswer(id string, a Answer) (got, want string) {
	f := a.frame(id)
	b, _ := json.Marshal(f)
	return string(f.append(nil)), string(b)
}
