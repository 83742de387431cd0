package gatewayws_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

func TestDecodeIntent(t *testing.T) {
	id, r, err := gatewayws.DecodeIntent([]byte(` {"id":"8","tile":"85283473fffffff","kind":"act","action":"0b54",
		"asset":"card","cost":3,"body":"ZmlyZQ=="} `))
	require.NoError(t, err)
	assert.Equal(t, "8", id)
	assert.Equal(t, gatewayws.Request{Tile: here, Kind: admission.Act, Action: "0b54", Asset: "card", Cost: 3,
		Body: []byte("fire")}, r)

	for frame, id := range map[string]string{
		``: "", `null`: "", `[]`: "", `{`: "", `7`: "", `{"id":7}`: "", "{\"id\":\"\xff\"}": "",
		`{"id":"","kind":"move","tile":"1"}`:                                "",
		`{"id":"` + strings.Repeat("x", 65) + `","kind":"move","tile":"1"}`: "",
		`{"id":"7"}`: "7",
		`{"id":"7","kind":"teleport","tile":"1"}`:                                "7",
		`{"id":"7","kind":"move","tile":1}`:                                      "7",
		`{"id":"7","kind":"move","tile":"ABC"}`:                                  "7",
		`{"id":"7","kind":"move","tile":"1","cost":-1}`:                          "7",
		`{"id":"7","kind":"move","tile":"1","cost":1e3}`:                         "7",
		`{"id":"7","kind":"move","tile":"1","body":"%"}`:                         "7",
		`{"id":"7","kind":"move","tile":"1"}{}`:                                  "",
		`{"id":"7","kind":"move","tile":"1","cost":99999999999999999999999}`:     "7",
		`{"id":"7","x":` + strings.Repeat("[", 5000) + strings.Repeat("]", 5000): "",
	} {
		got, _, err := gatewayws.DecodeIntent([]byte(frame))
		require.Error(t, err, frame)
		assert.Equal(t, id, got, frame)
	}
}

// TestWhatPlayersSendIsReadFast: movements and actions are, and what they are answered is written as encoding/json
// does.
func TestWhatPlayersSendIsReadFast(t *testing.T) {
	for frame, fast := range map[string]bool{
		`{"id":"7","tile":"85283473fffffff","kind":"move","body":"ZmlyZQ=="}`:        true,
		`{"id":"7","tile":"1","kind":"act","action":"0b54","body":"ZmlyZQ=="}`:       true,
		`{"id":"7","tile":"1","kind":"act","action":"0b54","asset":"card","cost":3}`: false,
		`{"id":"7","kind":"move","tile":"1"}`:                                        false,
		`{"id":"7","tile":"01","kind":"move"}`:                                       false,
		`{"id":"7","tile":"1","kind":"move","body":"ZmlyZQ==","within":800}`:         true,
		`{"id":"7","tile":"1","kind":"move","within":-8}`:                            false,
	} {
		got, want, plain := gatewayws.Plain([]byte(frame))
		require.Equal(t, fast, plain, frame)
		if fast {
			require.Equal(t, want, got, frame)
		}
	}
	for _, a := range []gatewayws.Answer{{Outcome: stream.Applied}, {Outcome: stream.Fizzled, Admission: "6f0c"},
		{Outcome: stream.Rejected, Reason: admission.ReasonBalance}, {Outcome: stream.Applied, Refunded: true},
		{Outcome: stream.Applied, At: time.UnixMilli(7)}, {Outcome: stream.Fizzled, Why: "<far>"}, {}} {
		for _, id := range []string{"7", `"<ö>`} {
			got, want := gatewayws.AppendAnswer(id, a)
			require.Equal(t, want, got)
		}
	}
}

// TestUnknownFieldsAreIgnored: a newer client may send them while an upgrade rolls. No field names the actor.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	frame := `{"id":"7","kind":"move","tile":"1","actor":"admin","new":{"deep":[1,{"er":null}]},"move":"m1",` +
		`"body":"ZmlyZQ=="}`
	id, r, err := gatewayws.DecodeIntent([]byte(frame))
	require.NoError(t, err)
	assert.Equal(t, "7", id)
	assert.Equal(t, gatewayws.Request{Tile: 1, Kind: admission.Move, Move: "m1", Body: []byte("fire")}, r)

	actors := make(chan string, 1)
	_, url := serve(t, &gateway{move: func(_ context.Context, in tile.Intent) (tile.Result, error) {
		actors <- in.Actor + in.MoveID
		return tile.Result{Outcome: stream.Applied, Why: "a clear path"}, nil
	}}, nil)
	want := `{"id":"7","outcome":"applied","why":"a clear path"}`
	assert.JSONEq(t, want, exchange(t, raw(t, url), websocket.MessageText, frame))
	assert.Equal(t, "annm1", <-actors, "the authenticated one")
}

// TestMalformedFramesSayWhatToDo: each with the code malformed and a text that names what is wrong.
func TestMalformedFramesSayWhatToDo(t *testing.T) {
	_, url := serve(t, &gateway{}, nil)
	for frame, says := range map[string]string{
		`{"id":"7"} {}`:                     "one JSON object",
		`{"id":"7","kind":"move","tile":1}`: "tile",
		`{"id":"7","kind":"teleport"}`:      "kind must be",
		`{"kind":"move"}`:                   "1 to 64 bytes",
	} {
		answer := exchange(t, raw(t, url), websocket.MessageText, frame)
		assert.Contains(t, answer, `"code":"malformed"`, frame)
		assert.Contains(t, answer, says, frame)
	}
}

func TestDecodeAnswer(t *testing.T) {
	frame := `{"id":"8","outcome":"rejected","why":"poor","admission":"6f0c","reason":"balance","new":1}`
	id, a, err := gatewayws.DecodeAnswer([]byte(frame))
	require.NoError(t, err)
	assert.Equal(t, "8", id)
	assert.Equal(t, gatewayws.Answer{Outcome: stream.Rejected, Why: "poor", Admission: "6f0c",
		Reason: admission.ReasonBalance}, a)
	_, a, err = gatewayws.DecodeAnswer([]byte(`{"id":"8","outcome":"rejected","reason":"of the future"}`))
	require.NoError(t, err)
	assert.Zero(t, a.Reason)
	for _, frame := range []string{``, `7`, `{"id":"8"}`, `{"id":"8","outcome":"won"}`} {
		_, _, err = gatewayws.DecodeAnswer([]byte(frame))
		require.Error(t, err, frame)
	}
	var e *gatewayws.Error
	_, _, err = gatewayws.DecodeAnswer([]byte(
		`{"id":"8","admission":"6f0c","error":{"code":"limited","message":"m","retryable":true,"retry_after":250}}`))
	require.ErrorAs(t, err, &e)
	assert.Equal(t, &gatewayws.Error{Code: gatewayws.CodeLimited, Message: "m", Retryable: true,
		RetryAfter: 250 * time.Millisecond, Admission: "6f0c"}, e)
}

// TestErrorsForClients: what each error of the gateway becomes, and that nothing from behind it gets out.
func TestErrorsForClients(t *testing.T) {
	secret := errors.New("password=1234")
	art := admission.Artifact{ActionID: "x", AdmissionID: "6f0c"}
	store := &fence.StoreError{Op: "admit", Outcome: fence.ErrUnknownOutcome, Err: secret}
	for _, c := range []struct {
		err   error
		code  gatewayws.Code
		retry bool
		is    error
	}{
		{&fence.ArgumentError{Field: "actor"}, gatewayws.CodeInvalid, false, fence.ErrInvalidArgument},
		{&admission.DeclinedError{Err: errors.New("not your turn")}, gatewayws.CodeRefused, false,
			admission.ErrDeclined},
		{&admission.DeclinedError{Err: &fence.ArgumentError{Field: "x"}}, gatewayws.CodeRefused, false,
			admission.ErrDeclined},
		{&admission.ReusedError{}, gatewayws.CodeReused, false, admission.ErrReused},
		{&admission.PendingError{Artifact: art, Err: secret}, gatewayws.CodePending, true, admission.ErrPending},
		{&admission.PendingError{Artifact: art, Err: store}, gatewayws.CodePending, true, admission.ErrPending},
		{&admission.PendingError{Artifact: art, Err: tile.ErrOverloaded}, gatewayws.CodePending, true,
			admission.ErrPending},
		{&admission.PendingError{Artifact: art, Err: admission.ErrExpired}, gatewayws.CodeExpired, false,
			admission.ErrExpired},
		{&admission.LimitError{RetryAfter: 1500 * time.Microsecond}, gatewayws.CodeLimited, true, admission.ErrLimited},
		{&admission.LimitError{Scope: admission.ScopeActor}, gatewayws.CodeLimited, true, admission.ErrLimited},
		{&admission.LimitError{Scope: admission.ScopeTile}, gatewayws.CodeOverloaded, true, tile.ErrOverloaded},
		{&admission.LimitError{Scope: admission.ScopeTakeover}, gatewayws.CodeOverloaded, true, tile.ErrOverloaded},
		{&admission.ForwardError{Err: tile.ErrOverloaded}, gatewayws.CodeOverloaded, true, tile.ErrOverloaded},
		{&admission.ForwardError{Err: &tile.QuarantinedError{Quarantine: fence.Quarantine{By: "password=1234"}}},
			gatewayws.CodeQuarantined, true, tile.ErrQuarantined},
		{&admission.PendingError{Artifact: art, Err: &tile.QuarantinedError{}}, gatewayws.CodeQuarantined, true,
			tile.ErrQuarantined},
		{&admission.PendingError{Artifact: art, Err: &tile.QuarantinedError{}}, gatewayws.CodeQuarantined, true,
			admission.ErrPending},
		{&admission.ForwardError{Err: secret}, gatewayws.CodeUnavailable, true, nil},
		{&admission.ForwardError{Err: &fence.ArgumentError{Field: "password=1234"}}, gatewayws.CodeUnavailable, true,
			nil},
		{&route.NoRouteError{Err: secret}, gatewayws.CodeUnavailable, true, nil},
		{store, gatewayws.CodeUnavailable, true, nil},
		{secret, gatewayws.CodeInternal, true, nil},
	} {
		e := gatewayws.Describe(c.err)
		assert.Equal(t, c.code, e.Code, "%v", c.err)
		assert.Equal(t, c.retry, e.Retryable, "%v", c.err)
		assert.NotContains(t, e.Message, "1234")
		if c.is != nil {
			require.ErrorIs(t, e, c.is)
		}
		if errors.Is(c.err, admission.ErrPending) {
			assert.Equal(t, admission.AdmissionID("6f0c"), e.Admission)
		}
	}
	require.NotErrorIs(t, gatewayws.Describe(secret), fence.ErrInvalidArgument)
}

func FuzzIntentFrame(f *testing.F) {
	f.Add([]byte(`{"id":"7","tile":"85283473fffffff","kind":"move","body":"ZmlyZQ=="}`))
	f.Add([]byte(`{"id":"8","tile":"1","kind":"act","action":"0b54","asset":"card","cost":9007199254740991}`))
	f.Add([]byte("{\"id\":\"\xff\"}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want, plain := gatewayws.Plain(b); plain {
			require.Equal(t, want, got)
		}
		id, r, err := gatewayws.DecodeIntent(b)
		require.LessOrEqual(t, len(id), 64)
		if err != nil {
			return
		}
		require.NotEmpty(t, id)
		for _, s := range []string{id, r.Action, r.Asset} {
			require.True(t, utf8.ValidString(s))
		}
		again, err := json.Marshal(map[string]any{"id": id, "tile": r.Tile.String(), "kind": r.Kind, "action": r.Action,
			"asset": r.Asset, "cost": r.Cost, "body": r.Body})
		require.NoError(t, err)
		if r.Tile == 0 { // left out; the gateway refuses it
			return
		}
		id2, r2, err := gatewayws.DecodeIntent(again)
		require.NoError(t, err)
		require.Equal(t, id, id2)
		r.Body, r2.Body = append([]byte{}, r.Body...), append([]byte{}, r2.Body...) // nil and empty are the same
		require.Equal(t, r, r2)
	})
}

func FuzzAnswerFrame(f *testing.F) {
	f.Add([]byte(`{"id":"8","outcome":"rejected","admission":"6f0c","reason":"balance"}`))
	f.Add([]byte(`{"id":"8","error":{"code":"limited","message":"m","retryable":true,"retry_after":-5}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, a, err := gatewayws.DecodeAnswer(b)
		require.NotEqual(t, err == nil, !a.Outcome.Valid())
		var e *gatewayws.Error
		if errors.As(err, &e) {
			require.GreaterOrEqual(t, e.RetryAfter, time.Duration(0))
		}
	})
}
