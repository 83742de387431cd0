package gatewayws

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
