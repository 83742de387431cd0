package gatewayws

import "encoding/json"

// What the tests of the codec look at.
var (
	DecodeAnswer = decodeAnswer
	Describe     = describe
)

// DecodeIntent returns what a frame holds as a Request, and its id.
func DecodeIntent(b []byte) (string, Request, error) {
	f, err := decodeIntent(b)
	return f.ID, Request{Tile: f.Tile, Kind: f.Kind, Body: f.Body, Action: f.Action, Asset: f.Asset, Cost: f.Cost}, err
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
