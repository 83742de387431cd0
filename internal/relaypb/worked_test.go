package relaypb_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tilefence/tilefence/internal/relaypb"
)

// conversation is the golden messages of the connection that docs/wire.md shows, in their order.
var conversation = []string{
	"subscribe with a floor and no state",
	"sync from scratch, of a tile with a snapshot",
	"frame of a batch in areas",
	"frame of a batch",
	"unsubscribe",
}

// TestWorkedConnection: docs/wire.md shows one connection byte by byte, as the golden messages have it.
func TestWorkedConnection(t *testing.T) {
	all, messages := goldens()
	var want strings.Builder
	for _, name := range conversation {
		found := false
		for i, g := range all {
			if g.Name != name {
				continue
			}
			found = true
			data, err := relaypb.Binary.Append(nil, messages[i])
			require.NoError(t, err)
			fmt.Fprintf(&want, "%s: %s, %d bytes\n", g.From, name, len(data))
			dump(t, &want, messages[i].ProtoReflect().Descriptor(), data, 0)
		}
		require.True(t, found, name)
	}
	page, err := os.ReadFile("../../docs/wire.md")
	require.NoError(t, err)
	require.Contains(t, string(page), "```\n"+want.String()+"```\n",
		"docs/wire.md does not show the connection as it is; the block is\n\n%s", want.String())
}

// dump writes the fields of an encoded message, one a line: the bytes, then what they mean.
func dump(t *testing.T, w *strings.Builder, d protoreflect.MessageDescriptor, data []byte, depth int) {
	const column = 54
	line := func(raw []byte, meaning string) {
		text := strings.Repeat("  ", depth) + strings.TrimSpace(fmt.Sprintf("% x", raw))
		if len(raw) > 18 { // the meaning has the rest
			text = strings.Repeat("  ", depth) + fmt.Sprintf("% x …", raw[:12])
		}
		fmt.Fprintf(w, "%-*s %s\n", column+2, text, meaning)
	}
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		require.Positive(t, n)
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		require.Positive(t, size)
		field, raw := d.Fields().ByNumber(number), data[:n+size]
		require.NotNil(t, field)
		value := data[n : n+size]
		data = data[n+size:]
		switch kind {
		case protowire.BytesType:
			content, _ := protowire.ConsumeBytes(value)
			switch field.Kind() {
			case protoreflect.MessageKind:
				line(raw[:len(raw)-len(content)], string(field.Name()))
				dump(t, w, field.Message(), content, depth+1)
			case protoreflect.StringKind:
				line(raw, fmt.Sprintf("%s %q", field.Name(), content))
			default:
				line(raw, fmt.Sprintf("%s, %d bytes: %s", field.Name(), len(content), hex.EncodeToString(content)))
			}
		case protowire.Fixed64Type:
			v, _ := protowire.ConsumeFixed64(value)
			line(raw, fmt.Sprintf("%s %d", field.Name(), v))
		default:
			v, _ := protowire.ConsumeVarint(value)
			line(raw, fmt.Sprintf("%s %d", field.Name(), v))
		}
	}
}
