package tilehttp_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehttp"
)

// madeByHand is a tile server that does with each connection what serve says. It returns its contact.
func madeByHand(t testing.TB, serve func(ctx context.Context, conn *websocket.Conn)) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{tilehttp.Subprotocol}})
		if err != nil {
			return
		}
		defer func() { _ = conn.CloseNow() }()
		serve(ctx, conn)
	}))
	t.Cleanup(server.Close)
	t.Cleanup(cancel)
	return server.Listener.Addr().String()
}

// dial is a gateway made by hand.
func dial(t testing.TB, contact string) *websocket.Conn {
	t.Helper()
	conn, _, err := websocket.Dial(t.Context(), "ws://"+contact+tilehttp.Path, //nolint:bodyclose // it is not to be
		&websocket.DialOptions{Subprotocols: []string{tilehttp.Subprotocol}})
	require.NoError(t, err)
	conn.SetReadLimit(tilehttp.MaxMessage)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

func say(t testing.TB, conn *websocket.Conn, message string) {
	t.Helper()
	require.NoError(t, conn.Write(t.Context(), websocket.MessageText, []byte(message)))
}

func hear(t testing.TB, conn *websocket.Conn) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, b, err := conn.Read(ctx)
	require.NoError(t, err)
	return string(b)
}

// goldenMessage is a message of testdata/messages.json, which was written by another program.
type goldenMessage struct {
	Name, From, Message string
}

func goldenMessages(t testing.TB) map[string]string {
	t.Helper()
	text, err := os.ReadFile("testdata/messages.json")
	require.NoError(t, err)
	var all []goldenMessage
	require.NoError(t, json.Unmarshal(text, &all))
	byName := map[string]string{}
	for _, m := range all {
		byName[m.Name] = m.Message
	}
	return byName
}

// TestGolden pins the messages, both ways.
func TestGolden(t *testing.T) {
	golden := goldenMessages(t)
	contact := madeByHand(t, func(ctx context.Context, conn *websocket.Conn) {
		for _, answer := range []string{"applied", "redirect", "overloaded"} {
			_, b, err := conn.Read(ctx)
			if !assert.NoError(t, err) {
				return
			}
			assert.Equal(t, golden["intent "+answer], string(b))
			assert.NoError(t, conn.Write(ctx, websocket.MessageText, []byte(golden[answer])))
		}
		_, _, _ = conn.Read(ctx)
	})
	client := newClient(t, nil)
	in := tile.Intent{Tile: here, ActionID: "0b54", Actor: "ann", Body: []byte("fire")}
	outcome, err := client.Forward(t.Context(), contact, in)
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, outcome.Outcome)
	_, err = client.Forward(t.Context(), contact, tile.Intent{Tile: here, Actor: "bob"})
	assert.Equal(t, &tile.RedirectError{Tile: here, Epoch: 7, Contact: "b:1"}, err)
	_, err = client.Forward(t.Context(), contact, tile.Intent{Tile: here})
	require.ErrorIs(t, err, tile.ErrOverloaded)

	answers := map[string]error{"ann": nil, "bob": &tile.RedirectError{Tile: here, Epoch: 7, Contact: "b:1"},
		"": tile.ErrOverloaded, "cyd": &tile.UnresolvedError{Tile: here, Epoch: 7, Contact: "b:1"}}
	h := handler(t, tilehttp.SubmitterFunc(func(_ context.Context, in tile.Intent) (tile.Result, error) {
		if err := in.Validate(); err != nil {
			return tile.Result{}, err
		}
		return tile.Result{Outcome: stream.Applied}, answers[in.Actor]
	}))
	server := httptest.NewServer(h)
	defer server.Close()
	conn := dial(t, server.Listener.Addr().String())
	for _, name := range []string{"applied", "redirect", "overloaded", "unresolved", "invalid", "malformed intent"} {
		say(t, conn, golden["intent "+name])
		assert.Equal(t, golden[name], hear(t, conn))
	}
	draining := make(chan error, 1)
	go func() { draining <- h.Drain(t.Context()) }()
	assert.Equal(t, golden["drain"], hear(t, conn))
	say(t, conn, golden["malformed message"])
	assert.Equal(t, golden["error"], hear(t, conn))
	_, _, err = conn.Read(t.Context())
	assert.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))
	require.NoError(t, <-draining)
}

// TestForeignMessagesOfATileServer: whatever a tile server says, the intent it was sent has an outcome that is unknown.
func TestForeignMessagesOfATileServer(t *testing.T) {
	for _, message := range []string{
		"", "<html>", "null", "[]", "{}", `{"v":2,"answers":[{"id":1,"outcome":"applied"}]}`,
		`{"v":1,"answers":[{"id":1,"outcome":"won"}]}`, `{"v":1,"answers":[{"id":1}]}`,
		`{"v":1,"answers":[{"id":1,"outcome":"applied","error":{"code":"redirect"}}]}`,
		`{"v":1,"answers":[{"id":1,"error":{"code":"gone"}}]}`, `{"v":1,"answers":[{"id":1,"error":{}}]}`,
		`{"v":1,"answers":[{"id":1,"error":{"code":"redirect","epoch":-1}}]}`,
		`{"v":1,"answers":[{"id":"1","outcome":"applied"}]}`, `{"v":1,"answers":{"id":1}}`,
		`{"v":1,"error":{"code":"invalid","field":"version"}}`, "\xff", strings.Repeat(" ", tilehttp.MaxMessage+1),
		"binary", "close",
	} {
		contact := madeByHand(t, func(ctx context.Context, conn *websocket.Conn) {
			_, _, _ = conn.Read(ctx)
			switch message {
			case "close":
				_ = conn.Close(websocket.StatusNormalClosure, "")
			case "binary":
				_ = conn.Write(ctx, websocket.MessageBinary, []byte(`{"v":1,"answers":[{"id":1,"outcome":"applied"}]}`))
			default:
				_ = conn.Write(ctx, websocket.MessageText, []byte(message))
			}
			_, _, _ = conn.Read(ctx)
		})
		client := newClient(t, nil)
		_, err := client.Forward(t.Context(), contact, tile.Intent{Tile: here})
		require.ErrorIs(t, err, fence.ErrUnknownOutcome, message)
		require.NotErrorIs(t, err, tile.ErrRedirect, message)
		require.NotErrorIs(t, err, fence.ErrNotApplied, message)
		client.Close()
	}
}

// TestUnknownFieldsOnAConnection: a newer release may send them while an upgrade rolls, in both directions; and
// messages that are altogether new, and answers to no intent under way.
func TestUnknownFieldsOnAConnection(t *testing.T) {
	contact := madeByHand(t, func(ctx context.Context, conn *websocket.Conn) {
		_, _, _ = conn.Read(ctx)
		for _, message := range []string{
			`{"v":1,"new":{"deep":[1]}}`, `{"v":1,"answers":[{"id":99,"outcome":"fizzled"}]}`,
			`{"v":1,"new":0,"answers":[{"id":0},{"id":1,"outcome":"applied","new":[null]}]}`,
		} {
			_ = conn.Write(ctx, websocket.MessageText, []byte(message))
		}
		_, _, _ = conn.Read(ctx)
	})
	outcome, err := newClient(t, nil).Forward(t.Context(), contact, tile.Intent{Tile: here})
	require.NoError(t, err)
	assert.Equal(t, stream.Applied, outcome.Outcome)

	contact, _ = serve(t, func(_ context.Context, in tile.Intent) (tile.Result, error) {
		assert.Equal(t, tile.Intent{Tile: here, ActionID: "0b54"}, in)
		return tile.Result{Outcome: stream.Applied}, nil
	})
	conn := dial(t, contact)
	say(t, conn, `{"v":1,"new":1}`)
	say(t, conn, `{"v":1,"new":[],"intents":[{"id":3,"tile":"85283473fffffff","new":{"er":1},"action":"0b54"}]}`)
	assert.Equal(t, `{"v":1,"answers":[{"id":3,"outcome":"applied"}]}`, hear(t, conn))
}

// TestMalformedMessagesOfAGateway: an intent that cannot be read is refused alone; a message that cannot be is refused
// with what is wrong, and ends the connection.
func TestMalformedMessagesOfAGateway(t *testing.T) {
	contact, _ := serve(t, func(_ context.Context, in tile.Intent) (tile.Result, error) {
		return tile.Result{Outcome: stream.Applied}, in.Validate()
	})
	const good = `{"id":9,"tile":"1"}`
	for _, bad := range []string{
		`{"id":5,"tile":1}`, `{"id":5,"tile":"x"}`, `{"id":5}`, `{"id":5,"tile":"1","body":"%"}`,
		`{"id":5,"tile":"1","action":7}`, `{"id":5,"tile":"1","within":"soon"}`,
		`{"id":5,"tile":"1","action":"\ud800"}`,
	} {
		conn := dial(t, contact)
		say(t, conn, `{"v":1,"intents":[`+bad+","+good+`]}`)
		heard := hear(t, conn)
		if strings.Count(heard, `"id"`) == 1 {
			heard += hear(t, conn)
		}
		assert.Contains(t, heard, `{"id":9,"outcome":"applied"}`, bad)
		assert.Contains(t, heard, `{"id":5,"error":{"code":"invalid"`, bad)
		assert.Contains(t, heard, `"want":`, "what to send instead")
	}
	for bad, field := range map[string]string{
		"": "request", "null": "version", "[]": "request", "{": "request", "{}": "version", `{"v":2}`: "version",
		"\xff": "request", `{"v":1,"intents":3}`: "request", `{"v":1,"intents":[3,` + good + `]}`: "id",
		`{"v":1,"intents":[{"tile":"1"}]}`: "id", `{"v":1,"intents":[{"id":0,"tile":"1"}]}`: "id",
		`{"v":1,"intents":[{"id":-1,"tile":"1"}]}`: "id", `{"v":1} x`: "request",
	} {
		conn := dial(t, contact)
		say(t, conn, bad)
		var heard struct {
			Error struct{ Code, Field, Want string }
		}
		require.NoError(t, json.Unmarshal([]byte(hear(t, conn)), &heard), bad)
		assert.Equal(t, "invalid", heard.Error.Code, bad)
		assert.Equal(t, field, heard.Error.Field, bad)
		assert.NotEmpty(t, heard.Error.Want, bad)
		_, _, err := conn.Read(t.Context())
		assert.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err), bad)
	}
	conn := dial(t, contact)
	require.NoError(t, conn.Write(t.Context(), websocket.MessageBinary, []byte(`{"v":1,"intents":[`+good+`]}`)))
	assert.Contains(t, hear(t, conn), `"field":"message"`)
	conn = dial(t, contact)
	say(t, conn, strings.Repeat(" ", tilehttp.MaxMessage+1))
	_, _, err := conn.Read(t.Context())
	assert.Equal(t, websocket.StatusMessageTooBig, websocket.CloseStatus(err))
}

// TestOtherSubprotocols: neither side goes on with a peer that speaks something else.
func TestOtherSubprotocols(t *testing.T) {
	contact, _ := serve(t, validating(t))
	conn, _, err := websocket.Dial(t.Context(), "ws://"+contact+tilehttp.Path, nil) //nolint:bodyclose // as above
	require.NoError(t, err)
	_, _, err = conn.Read(t.Context())
	assert.Equal(t, websocket.StatusPolicyViolation, websocket.CloseStatus(err))

	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if conn, err := websocket.Accept(w, r, nil); err == nil {
			_, _, _ = conn.Read(r.Context())
		}
	}))
	defer server.Close()
	client := newClient(t, nil)
	_, err = client.Forward(t.Context(), server.Listener.Addr().String(), tile.Intent{Tile: here})
	require.ErrorIs(t, err, fence.ErrNotApplied)
	assert.ErrorContains(t, err, tilehttp.Subprotocol)
	client.Close()
}
