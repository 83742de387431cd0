package relay

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/relay/relaypb"
)

// masked is a frame as a client writes it.
func masked(first byte, payload []byte) []byte {
	f := []byte{first}
	switch n := len(payload); {
	case n < 126:
		f = append(f, bitMasked|byte(n))
	case n < 1<<16:
		f = binary.BigEndian.AppendUint16(append(f, bitMasked|126), uint16(n))
	default:
		f = binary.BigEndian.AppendUint64(append(f, bitMasked|127), uint64(n))
	}
	mask := []byte{1, 2, 3, 0xff}
	f = append(f, mask...)
	for i, b := range payload {
		f = append(f, b^mask[i%4])
	}
	return f
}

type inboundMessage struct {
	op      byte
	payload string
}

// readAll reads messages until an error.
func readAll(from io.Reader, behind []byte, limit int) (all []inboundMessage, err error) {
	in := inbound{from: from, limit: limit, rest: behind}
	for {
		op, payload, err := in.next()
		if err != nil {
			return all, err
		}
		all = append(all, inboundMessage{op, string(payload)})
	}
}

func TestInboundMessages(t *testing.T) {
	t.Parallel()
	long, longer := strings.Repeat("x", 300), strings.Repeat("y", 70_000)
	var sent []byte
	for _, f := range [][]byte{
		masked(finBinary, []byte("one")), masked(finBinary, nil), masked(finText, []byte("zwölf")),
		masked(finBinary, []byte(long)), masked(finPing, []byte("p")), masked(finBinary, []byte(longer)),
		masked(opText, []byte("in ")), masked(finPong, nil), masked(opContinuation, []byte("three ")),
		masked(bitFinal|opContinuation, []byte("parts")), masked(finClose, []byte{0x03, 0xe8}),
	} {
		sent = append(sent, f...)
	}
	want := []inboundMessage{{opBinary, "one"}, {opBinary, ""}, {opText, "zwölf"}, {opBinary, long}, {opPing, "p"},
		{opBinary, longer}, {opPong, ""}, {opText, "in three parts"}, {opClose, "\x03\xe8"}}
	for name, from := range map[string]io.Reader{
		"at once": bytes.NewReader(sent), "byte by byte": iotest.OneByteReader(bytes.NewReader(sent)),
		"in halves":    iotest.HalfReader(bytes.NewReader(sent)),
		"with the end": iotest.DataErrReader(bytes.NewReader(sent)),
	} {
		got, err := readAll(from, nil, 70_000)
		require.ErrorIs(t, err, io.EOF, name)
		require.Equal(t, want, got, name)
	}
	got, err := readAll(bytes.NewReader(sent[7:]), bytes.Clone(sent[:7]), 70_000)
	require.ErrorIs(t, err, io.EOF)
	require.Equal(t, want, got, "the first bytes came behind the handshake")
	for n := range 40 {
		_, err := readAll(bytes.NewReader(sent[:n]), nil, 70_000)
		require.Error(t, err, "cut short")
	}
}

// violations are frames that a client must not send, and the status with which it is closed.
var violations = map[string]struct {
	sent   []byte
	status int
}{
	"not masked":               {[]byte{finBinary, 1, 'x'}, closeProtocol},
	"reserved bit":             {masked(finBinary|0x40, nil), closeProtocol},
	"unknown opcode":           {masked(bitFinal|3, nil), closeProtocol},
	"unknown control frame":    {masked(bitFinal|0xb, nil), closeProtocol},
	"ping in pieces":           {masked(opPing, nil), closeProtocol},
	"long ping":                {masked(finPing, make([]byte, 126)), closeProtocol},
	"continuation of nothing":  {masked(bitFinal|opContinuation, nil), closeProtocol},
	"a message within another": {append(masked(opBinary, nil), masked(finBinary, nil)...), closeProtocol},
	"too long":                 {masked(finBinary, make([]byte, 20<<10)), closeTooBig},
	"too long in pieces": {append(masked(opBinary, make([]byte, 10<<10)),
		masked(opContinuation, make([]byte, 10<<10))...), closeTooBig},
	"a length without measure": {append([]byte{finBinary, bitMasked | 127}, bytes.Repeat([]byte{0xff}, 8)...),
		closeTooBig},
	"text that is not UTF-8":    {masked(finText, []byte{'a', 0xff}), closeBadData},
	"half a character":          {masked(finText, []byte("ö")[:1]), closeBadData},
	"binary on a text protocol": {masked(finText, []byte("{}")), relaypb.ClosePolicy},
}

// TestInboundViolations: each ends the connection with a status, on a running relay.
func TestInboundViolations(t *testing.T) {
	s := newWorld(t).serve(still())
	t.Run("each", func(t *testing.T) {
		for name, v := range violations {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				c := s.bare(t)
				_, err := c.Write(v.sent)
				require.NoError(t, err)
				answer, err := io.ReadAll(c) // until the relay closes the connection
				require.NoError(t, err)
				last := bytes.LastIndexByte(answer, finClose)
				require.GreaterOrEqual(t, last, 0)
				require.Equal(t, v.status, closeCode(answer[last+2:]))
				_ = c.Close()
			})
		}
	})
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "all are gone")
	require.GreaterOrEqual(t, int(s.Stats().BadMessages), len(violations))
}

// TestCloseIsAnswered: a client that closes first gets the status back.
func TestCloseIsAnswered(t *testing.T) {
	s := newWorld(t).serve(still())
	c := s.raw(t, relaypb.Subprotocol)
	require.NoError(t, c.Close(websocket.StatusCode(4321), "enough"))
	eventually(t, func() bool { return s.Stats().Clients == 0 }, "it is gone")
}

// FuzzInbound: no bytes make the reader panic, hold more than its limit, or take an invalid message.
func FuzzInbound(f *testing.F) {
	for _, v := range violations {
		f.Add(v.sent)
	}
	f.Add(append(masked(opText, []byte("a")), masked(bitFinal|opContinuation, []byte("b"))...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		all, err := readAll(bytes.NewReader(sent), nil, 1000)
		if wrong, ok := errors.AsType[*frameError](err); ok {
			require.Contains(t, []int{closeProtocol, closeBadData, closeTooBig}, wrong.status)
		}
		for _, m := range all {
			require.LessOrEqual(t, len(m.payload), 1000)
		}
		again, _ := readAll(iotest.OneByteReader(bytes.NewReader(sent)), nil, 1000)
		require.Equal(t, all, again)
	})
}
