package socket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	finText   = bitFinal | OpText
	finBinary = bitFinal | OpBinary
	finClose  = bitFinal | OpClose
	finPing   = bitFinal | OpPing
	finPong   = bitFinal | OpPong
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
		masked(OpText, []byte("in ")), masked(finPong, nil), masked(opContinuation, []byte("three ")),
		masked(bitFinal|opContinuation, []byte("parts")), masked(finClose, []byte{0x03, 0xe8}),
	} {
		sent = append(sent, f...)
	}
	want := []inboundMessage{{OpBinary, "one"}, {OpBinary, ""}, {OpText, "zwölf"}, {OpBinary, long}, {OpPing, "p"},
		{OpBinary, longer}, {OpPong, ""}, {OpText, "in three parts"}, {OpClose, "\x03\xe8"}}
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
	"not masked":               {[]byte{finBinary, 1, 'x'}, CloseProtocol},
	"reserved bit":             {masked(finBinary|0x40, nil), CloseProtocol},
	"unknown opcode":           {masked(bitFinal|3, nil), CloseProtocol},
	"unknown control frame":    {masked(bitFinal|0xb, nil), CloseProtocol},
	"ping in pieces":           {masked(OpPing, nil), CloseProtocol},
	"long ping":                {masked(finPing, make([]byte, 126)), CloseProtocol},
	"continuation of nothing":  {masked(bitFinal|opContinuation, nil), CloseProtocol},
	"a message within another": {append(masked(OpBinary, nil), masked(finBinary, nil)...), CloseProtocol},
	"too long":                 {masked(finBinary, make([]byte, 20<<10)), CloseTooBig},
	"too long in pieces": {append(masked(OpBinary, make([]byte, 10<<10)),
		masked(opContinuation, make([]byte, 10<<10))...), CloseTooBig},
	"a length without measure": {append([]byte{finBinary, bitMasked | 127}, bytes.Repeat([]byte{0xff}, 8)...),
		CloseTooBig},
	"text that is not UTF-8": {masked(finText, []byte{'a', 0xff}), CloseBadData},
	"half a character":       {masked(finText, []byte("ö")[:1]), CloseBadData},
}

// TestViolations: each is an error with a status.
func TestViolations(t *testing.T) {
	for name, v := range violations {
		_, err := readAll(bytes.NewReader(v.sent), nil, 16<<10)
		var wrong *FrameError
		require.ErrorAs(t, err, &wrong, name)
		require.Equal(t, v.status, wrong.Status, name)
	}
}

// FuzzInbound: no bytes make the reader panic, hold more than its limit, or take an invalid message.
func FuzzInbound(f *testing.F) {
	for _, v := range violations {
		f.Add(v.sent)
	}
	f.Add(append(masked(OpText, []byte("a")), masked(bitFinal|opContinuation, []byte("b"))...))
	f.Fuzz(func(t *testing.T, sent []byte) {
		all, err := readAll(bytes.NewReader(sent), nil, 1000)
		if wrong, ok := errors.AsType[*FrameError](err); ok {
			require.Contains(t, []int{CloseProtocol, CloseBadData, CloseTooBig}, wrong.Status)
		}
		for _, m := range all {
			require.LessOrEqual(t, len(m.payload), 1000)
		}
		again, _ := readAll(iotest.OneByteReader(bytes.NewReader(sent)), nil, 1000)
		require.Equal(t, all, again)
	})
}

// A peer that sends what is no message, as much as it can, is cut off; one that pings now and then for hours is not.
func TestInboundFramesBesideMessagesHaveABudget(t *testing.T) {
	t.Parallel()
	flood := func(frame []byte) io.Reader {
		return &repeated{frame: frame, n: 1_000_000}
	}
	fragment := masked(opContinuation, nil)
	for name, from := range map[string]io.Reader{
		"pings":           flood(masked(finPing, []byte("x"))),
		"pongs":           flood(masked(finPong, nil)),
		"empty fragments": io.MultiReader(bytes.NewReader(masked(OpText, nil)), flood(fragment)),
	} {
		in := inbound{from: from, limit: 100}
		var err error
		frames := 0
		for ; err == nil; frames++ {
			_, _, err = in.next()
		}
		var wrong *FrameError
		require.ErrorAs(t, err, &wrong, name)
		require.Equal(t, ClosePolicy, wrong.Status, name)
		require.LessOrEqual(t, frames, maxFrames+1, name)
	}
	synctest.Test(t, func(t *testing.T) {
		in := inbound{from: flood(masked(finPing, nil)), limit: 100}
		for range 100_000 {
			_, _, err := in.next()
			require.NoError(t, err)
			time.Sleep(BudgetWindow / (maxFrames - 1))
		}
	})
	all := inbound{from: flood(masked(finText, []byte("x"))), limit: 100}
	for range 100_000 {
		_, _, err := all.next()
		require.NoError(t, err, "messages are for the user to count")
	}
}

// repeated is a frame n times.
type repeated struct {
	frame []byte
	n, at int
}

func (r *repeated) Read(p []byte) (n int, err error) {
	for n < len(p) && r.n > 0 {
		c := copy(p[n:], r.frame[r.at:])
		n, r.at = n+c, r.at+c
		if r.at == len(r.frame) {
			r.n, r.at = r.n-1, 0
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// A peer that is told to go and goes on sending is not listened to for long.
func TestAwaitCloseIsBounded(t *testing.T) {
	t.Parallel()
	ours, theirs := net.Pipe()
	c := newConn(ours, nil, false, 100, nil)
	sent := make(chan int)
	go func() {
		n, block := 0, make([]byte, 4096)
		for {
			m, err := theirs.Write(block)
			if n += m; err != nil {
				sent <- n
				return
			}
		}
	}()
	c.AwaitClose()
	require.NoError(t, c.Close())
	require.LessOrEqual(t, <-sent, maxUnseen+64<<10)
}
