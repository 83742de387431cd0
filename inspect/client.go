package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/tilefence/tilefence/fence"
)

// Client asks an inspector, as its page does. Errors are those of the HTTP client, or have the
// inspector's own words.
type Client struct {
	URL    string       // where the inspector is mounted, such as http://10.0.0.7:7000/inspect/
	Header http.Header  // that authorises the requests; may be nil
	HTTP   *http.Client // nil means http.DefaultClient
}

// maxInspection bounds what an inspector may answer, in bytes: 100,000 tiles with their marks.
const maxInspection = 64 << 20

// Tiles returns the tiles of the server.
func (c *Client) Tiles(ctx context.Context) (seen Server, err error) {
	body, err := c.ask(ctx, http.MethodGet, "tiles", nil)
	if err == nil {
		err = json.Unmarshal(body, &seen)
	}
	return seen, err
}

// State returns the game's state of a tile as of its last snapshot: JSON with epoch, seq and tick of the snapshot, and
// state as Config.Decode gives it.
func (c *Client) State(ctx context.Context, id fence.TileID) (json.RawMessage, error) {
	return c.ask(ctx, http.MethodGet, "state", url.Values{"tile": {id.String()}})
}

// TakeOver has the server take a tile over. It returns when that has begun.
func (c *Client) TakeOver(ctx context.Context, id fence.TileID) error {
	_, err := c.ask(ctx, http.MethodPost, "takeover", url.Values{"tile": {id.String()}})
	return err
}

// Drain has the server hand a tile to the server at a contact, or, if that is empty, release it.
func (c *Client) Drain(ctx context.Context, id fence.TileID, to string) error {
	_, err := c.ask(ctx, http.MethodPost, "drain", url.Values{"tile": {id.String()}, "to": {to}})
	return err
}

func (c *Client) ask(ctx context.Context, method, what string, query url.Values) ([]byte, error) {
	at := strings.TrimSuffix(c.URL, "/") + "/" + what
	if len(query) > 0 {
		at += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, method, at, nil)
	if err != nil {
		return nil, err
	}
	if c.Header != nil {
		r.Header = c.Header.Clone()
	}
	response, err := cmp.Or(c.HTTP, http.DefaultClient).Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, maxInspection))
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s: status %d: %s", r.URL.Host, response.StatusCode, strings.TrimSpace(string(body)))
	}
	return body, err
}
