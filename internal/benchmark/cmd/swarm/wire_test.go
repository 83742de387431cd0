//go:build linux

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/relaypb"
)

func at(seq uint64) *relaypb.Position {
	return &relaypb.Position{Epoch: 1 << 40, Seq: seq, Chain: 1<<63 + seq}
}

func encode(t *testing.T, m *relaypb.ServerMessage) []byte {
	body, err := relaypb.Binary.Append(nil, m)
	require.NoError(t, err)
	return body
}

// TestDecodeViewAgreesWithTheSchema: what the swarm reads by itself is what the generated messages hold.
func TestDecodeViewAgreesWithTheSchema(t *testing.T) {
	frame := func(seq uint64) *relaypb.Frame {
		return &relaypb.Frame{Position: at(seq), Prev: at(seq - 1), AtMs: 7, Kind: 1, Hidden: 1,
			Payload: []byte("x"), Rest: 3}
	}
	v, err := decodeView(encode(t, &relaypb.ServerMessage{Tile: "t",
		Body: &relaypb.ServerMessage_Frame{Frame: frame(9)}}))
	require.NoError(t, err)
	require.Equal(t, view{position: at(9).Fence(), from: at(8).Fence(), atMs: 7, kind: fence.KindBatch}, v)

	s := &relaypb.Sync{Opens: true, Replace: true, From: at(7), Position: at(9),
		Tail: []*relaypb.Frame{frame(8), frame(9)}, Blob: []byte("blob"), Areas: []uint32{1}, OwnerContact: "x",
		Sum: "y"}
	v, err = decodeView(encode(t, &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Sync{Sync: s}}))
	require.NoError(t, err)
	want := view{sync: true, opens: true, replace: true, from: at(7).Fence(), position: at(9).Fence()}
	require.Equal(t, want, v)

	s.Tail = s.Tail[1:]
	_, err = decodeView(encode(t, &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Sync{Sync: s}}))
	require.ErrorIs(t, err, errLeads)

	v, err = decodeView(encode(t, &relaypb.ServerMessage{Body: &relaypb.ServerMessage_Error{
		Error: &relaypb.Error{Code: 4, Message: "no"}}}))
	require.NoError(t, err)
	require.Equal(t, "no", v.refused)

	for _, damaged := range []string{"\x12\x05", "\xff", "\x1a\x03\x0a\x01\x08"} {
		_, err = decodeView([]byte(damaged))
		require.Error(t, err, "%q", damaged)
	}
}

func TestAppendIntent(t *testing.T) {
	require.JSONEq(t, `{"id":"7","tile":"85283083fffffff","kind":"move","within":3000,"body":"AAE="}`,
		string(appendIntent(nil, 7, 0x85283083fffffff, "", []byte{0, 1})))
	require.JSONEq(t, `{"id":"8","tile":"1","kind":"act","action":"A","body":""}`,
		string(appendIntent(nil, 8, 1, "A", nil)))
}

func TestDecodeAnswer(t *testing.T) {
	for body, want := range map[string]answer{
		`{"id":"7","outcome":"applied"}`:                           {ID: "7", Outcome: "applied"},
		`{"id":"7","outcome":"applied","admission":"a"}`:           {ID: "7", Outcome: "applied"},
		`{"id":"8","error":{"code":"limited","message":"\u00"}}`:   {},
		`{"id":"8","error":{"code":"overloaded","retry_after":9}}`: {ID: "8", Error: &refusal{"overloaded", 9}},
		`{"session":{"expires_in":5}}`:                             {},
	} {
		got, err := decodeAnswer([]byte(body))
		require.Equal(t, want, got, body)
		require.Equal(t, json.Valid([]byte(body)), err == nil, body)
	}
}
