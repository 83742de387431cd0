package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/match/matchhttp"
	"github.com/tilefence/tilefence/internal/devstack"
	"github.com/tilefence/tilefence/internal/devstack/stacktest"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
)

// TestNewLobby: a game with a lobby is formatted, passes vet and its own tests, and two players meet.
func TestNewLobby(t *testing.T) {
	if testing.Short() || runtime.GOOS != "linux" {
		t.Skip("builds a program, and runs it on a loopback address that only Linux has")
	}
	command := makeGame(t, "-lobby")
	unformatted, err := exec.Command("gofmt", "-l", ".").CombinedOutput()
	require.NoError(t, err)
	require.Empty(t, string(unformatted))
	command("vet", "./...")
	command("test", "./...")
	command("build", "-o", "game", ".")
	t.Run("memory", func(t *testing.T) { meet(t, nil, []string{"-memory"}) })
	t.Run("servers", func(t *testing.T) {
		stack := stacktest.Start(t, devstack.Config{AppendOnly: true,
			Parts: []devstack.Part{devstack.Coordination, devstack.Postgres, devstack.DynamoDB}})
		env := append(stack.Env(), "TILEFENCE_SECRET="+strings.Repeat("ab", 32))
		meet(t, env, nil)
		meet(t, env, append([][]string{{"-run", "matches"}, {"-run", "matches"}}, everyPart...)...)
	})
}

// meet runs the game in processes with these arguments, and lets two players ask for a match as its page does, take
// their seats, and play.
func meet(t *testing.T, env []string, processes ...[]string) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	host := loopback()
	listen := host + ":8080"
	end := startGame(ctx, t, host, env, processes)
	for path, want := range map[string]string{"/": "Find a match", "/page.js": "/lobby/tickets/"} {
		waittest.Until(t, func() bool { return strings.Contains(get(ctx, "http://"+listen+path), want) },
			30*time.Second, 50*time.Millisecond, path)
	}
	ask := func(method, player string) int {
		r, err := http.NewRequestWithContext(ctx, method, ticketOf("http://"+listen, player), strings.NewReader("{}"))
		require.NoError(t, err)
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		defer answer.Body.Close()
		if answer.StatusCode == http.StatusOK {
			require.NoError(t, json.NewDecoder(answer.Body).Decode(&matchhttp.Ticket{}))
		}
		return answer.StatusCode
	}
	dial := func(player, more string) *gatewayws.Client {
		c, err := gatewayws.Dial(ctx, "ws://"+listen+"/intent?player="+player+more, nil)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	refused := func(player, more string) {
		t.Helper()
		select {
		case <-dial(player, more).Done():
		case <-ctx.Done():
			t.Errorf("%s plays%s", player, more)
		}
	}
	refused("ann", "") // she has no ticket
	// Those of an earlier game on the same servers are others.
	players := []string{"ann-" + rand.Text(), "bob-" + rand.Text()}
	for _, player := range players {
		require.Equal(t, http.StatusOK, ask(http.MethodPut, player))
	}
	for _, player := range players {
		seat := seated(ctx, t, ticketOf("ws://"+listen, player))
		refused("eve", "&ticket="+player) // it is not hers
		c := dial(player, "&ticket="+player)
		waittest.Until(t, func() bool {
			answer, err := c.Do(ctx, gatewayws.Request{Tile: seat.Tile, Kind: admission.Move})
			return err == nil && answer.Outcome == stream.Applied
		}, 30*time.Second, 50*time.Millisecond)
	}
	for _, player := range players {
		require.Equal(t, http.StatusOK, ask(http.MethodDelete, player))
		refused(player, "&ticket="+player)
	}
	end()
}

// ticketOf is the address of a player's ticket.
func ticketOf(at, player string) string {
	return fmt.Sprintf("%s/lobby/tickets/%s?player=%[2]s", at, player)
}

// seated follows a ticket until it has a seat.
func seated(ctx context.Context, t *testing.T, at string) (ticket matchhttp.Ticket) {
	//nolint:bodyclose // the library says that there is no need
	c, _, err := websocket.Dial(ctx, at, &websocket.DialOptions{Subprotocols: []string{matchhttp.Protocol}})
	require.NoError(t, err)
	defer func() { _ = c.CloseNow() }() // nothing more is wanted of it
	for ticket.State != "seated" {
		require.NoError(t, wsjson.Read(ctx, c, &ticket), "last %+v", ticket)
	}
	return ticket
}
