package main

import (
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/statuspoller"
)

// TestOperatorsQuestions: who owns what, since when, at which epoch, how often did it move; and the counters.
func TestOperatorsQuestions(t *testing.T) {
	t.Parallel()
	began := time.Now()
	p := play(t, "-stack", "embedded", "-tiles", "2", "-clients", "4", "-balance-every", "0", "-tick", "100ms")
	page := p.page
	before := p.watch(t, func(s statuspoller.Status) bool { return len(s.Tiles) == 2 && s.Tiles[0].Seq > 2 })
	p.takeOver(t, before.Tiles[0].Tile)
	got := p.watch(t, func(s statuspoller.Status) bool {
		return s.Tiles[0].Epoch > 1 && s.Tiles[0].Owner != before.Tiles[0].Owner && s.Tiles[0].State == "serving" &&
			s.Tiles[0].Mints > 0 && s.Tiles[1].Mints > 0
	})
	require.Len(t, got.Tiles, 2)
	moved, stayed := got.Tiles[0], got.Tiles[1]
	assert.Greater(t, moved.Epoch, fence.Epoch(1))
	assert.EqualValues(t, moved.Epoch, moved.Mints)
	assert.EqualValues(t, stayed.Epoch, stayed.Mints)
	assert.Greater(t, moved.Since, stayed.Since)
	assert.GreaterOrEqual(t, stayed.Since, began.Add(-time.Second).UnixMilli())
	assert.Greater(t, moved.Seq, before.Tiles[0].Seq)
	p.watch(t, func(s statuspoller.Status) bool { return s.Tiles[0].Floor != "" && s.Tiles[0].Followers == 2 })

	metrics := string(get(t, page+"metrics"))
	assert.Regexp(t, `\ntilefence_tile_transitions_total{to="serving"} ([3-9]|\d\d)`, metrics)
	assert.Regexp(t, `\ntilefence_tile_tick_seconds_count [1-9]`, metrics)
	assert.Regexp(t, `\ntilefence_tilehost_tiles{state="serving"} [1-9]`, metrics)
	p.end(t)
}

func get(t *testing.T, url string) []byte {
	t.Helper()
	response, err := pageClient.Get(url)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode, url)
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return body
}
