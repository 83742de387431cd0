package tilefence_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// A process that reaches the port of a tile server without keys asks for 1,000 tiles that nobody owns, by hand-overs
// and by intents.
func TestStrangersBeginNoTiles(t *testing.T) {
	const asked, most = 1000, 20
	cfg := tilefence.TileServerConfig{Spawn: always}
	cfg.Host.MaxTiles = most
	cfg.Host.Allow = func(id fence.TileID) error {
		if id&1 == 0 {
			return fmt.Errorf("tile %s is another region's", id)
		}
		return nil
	}
	s := tileServer(t, embedded(t), cfg)
	start(t, s)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}, Timeout: 30 * time.Second}
	defer client.CloseIdleConnections()
	attack := func(path string, body func(id fence.TileID) string) {
		var wg sync.WaitGroup
		for worker := range 8 {
			wg.Go(func() {
				for i := worker; i < asked; i += 8 {
					ask(t, client, "http://"+s.Contact()+path, body(plaza+fence.TileID(i)))
				}
			})
		}
		wg.Wait()
	}
	attack(tilehttp.HandoverPath, func(id fence.TileID) string {
		return fmt.Sprintf(`{"v":1,"tile":"%s","epoch":7,"position":"7/0/0000000000000000","from":"x:1","to":%q}`, id,
			s.Contact())
	})
	assert.Empty(t, s.Host().Status(), "the store names no giver")
	peer, err := tilehttp.NewClient(nil)
	require.NoError(t, err)
	defer peer.Close()
	for i := range asked {
		_, _ = peer.Forward(t.Context(), s.Contact(), tile.Intent{Tile: plaza + fence.TileID(i)}) // most are refused
	}
	begun := s.Host().Status()
	assert.Len(t, begun, most)
	for _, b := range begun {
		assert.Equal(t, fence.TileID(1), b.Tile&1)
	}
	_, err = s.Submit(t.Context(), tile.Intent{Tile: begun[0].Tile})
	require.NoError(t, err)
	_, err = s.Submit(t.Context(), tile.Intent{Tile: plaza + asked})
	require.ErrorIs(t, err, tilehost.ErrFull)
	_, err = s.Submit(t.Context(), tile.Intent{Tile: plaza + asked + 1})
	require.ErrorIs(t, err, fence.ErrInvalidArgument)
}

// ask posts a request whose answer does not matter.
func ask(t *testing.T, client *http.Client, url, body string) {
	response, err := client.Post(url, "application/json", strings.NewReader(body))
	if assert.NoError(t, err) {
		_, _ = io.Copy(io.Discard, response.Body)
		response.Body.Close()
	}
}
