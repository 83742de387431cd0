package dynamocheckpoint

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/internal/dynamotx"
)

// formatVersion is the attribute v of every manifest. A reader refuses versions it does not know.
const formatVersion = 1

const (
	manifestPart = "manifest"
	chunkRoot    = "chunk/"
	afterAll     = "~" // sorts after every character used in a sort key
)

// manifest is the item that says which snapshot is in force.
type manifest struct {
	checkpoint.Head
	attempt string // names the chunks; unique to one try at storing one snapshot
	chunks  int    // zero: the blob is in the manifest
	blob    []byte
}

// judge decides whether n may replace m.
func (m *manifest) judge(n *manifest) (write bool, err error) {
	return m.Judge(&fence.Snapshot{Position: n.Position, Sum: n.Sum})
}

func (m *manifest) item() map[string]types.AttributeValue {
	item := key(m.Tile, manifestPart)
	item["v"] = number(formatVersion)
	item["epoch"] = number(uint64(m.Epoch))
	item["seq"] = number(uint64(m.Seq))
	item["chain"] = text(m.Chain.String())
	item["tick"] = number(uint64(m.Tick))
	item["contact"] = text(m.Contact)
	item["sum"] = text(m.Sum)
	item["taken"] = number(uint64(fence.Millis(m.Taken)))
	item["size"] = number(uint64(m.Size))
	item["attempt"] = text(m.attempt)
	item["chunks"] = number(uint64(m.chunks))
	if m.chunks == 0 {
		item["blob"] = dynamotx.Binary(m.blob)
	}
	return item
}

// headAttributes are the manifest's attributes without keys and blob.
var headAttributes = []string{"v", "epoch", "seq", "chain", "tick", "contact", "sum", "taken", "size", "attempt",
	"chunks"}

// headProjection asks for everything but the blob. Several of the names are reserved words, hence the
// placeholders.
func headProjection() (expression *string, names map[string]string) {
	return aws.String("#tile, #" + strings.Join(headAttributes, ", #")),
		dynamotx.Names(append([]string{"tile"}, headAttributes...)...)
}

// parseManifest reads a manifest with or without its blob. A *fence.CorruptError says what is wrong.
func parseManifest(tile fence.TileID, item map[string]types.AttributeValue) (manifest, error) {
	r := itemReader{dynamotx.Reader{Item: item}}
	r.version(formatVersion)
	m := manifest{Head: checkpoint.Head{Tile: tile, Position: fence.Position{
		Epoch: fence.Epoch(r.number("epoch")), Seq: fence.Seq(r.number("seq")),
	}}}
	m.Tick = fence.Tick(r.number("tick"))
	m.Contact = r.Text("contact")
	m.Sum = r.Text("sum")
	m.Taken = fence.FromMillis(int64(r.number("taken")))
	m.Size = int(r.number("size"))
	m.attempt = r.Text("attempt")
	m.chunks = int(r.number("chunks"))
	if chain, err := fence.ParseChain(r.Text("chain")); err != nil && r.Err == nil {
		r.Err = err
	} else {
		m.Chain = chain
	}
	if b, ok := item["blob"].(*types.AttributeValueMemberB); ok {
		m.blob = b.Value
	}
	switch {
	case r.Err != nil:
	case m.Epoch == 0 || m.Seq == 0 || m.attempt == "":
		r.Err = fmt.Errorf("epoch, sequence and attempt must not be empty")
	case m.Size > fence.MaxSnapshot || m.chunks > m.Size:
		r.Err = fmt.Errorf("%d bytes in %d chunks", m.Size, m.chunks)
	}
	if r.Err != nil {
		return manifest{}, &fence.CorruptError{Tile: tile, What: "checkpoint manifest", At: m.Position,
			Detail: r.Err.Error()}
	}
	return m, nil
}

// itemReader reads the attributes of manifests and of journals.
type itemReader struct{ dynamotx.Reader }

func (r *itemReader) number(name string) uint64 { return r.Number(name, fence.MaxNumber) }

func (r *itemReader) position(name string) fence.Position {
	at, err := fence.ParsePosition(r.Text(name))
	if err != nil {
		r.Fail(name)
	}
	return at
}

// version refuses an item of a format this reader does not know.
func (r *itemReader) version(known uint64) {
	if v := r.number("v"); v != known && r.Err == nil {
		r.Err = fmt.Errorf("version %d, this reader knows %d", v, known)
	}
}

// chunkPrefix begins the sort keys of an attempt's chunks.
func chunkPrefix(at fence.Position, attempt string) string {
	return fmt.Sprintf("%s%016x/%016x/%s/", chunkRoot, uint64(at.Epoch), uint64(at.Seq), attempt)
}

func chunkPart(prefix string, index int) string { return fmt.Sprintf("%s%04x", prefix, index) }

// chunkParts are the sort keys of the manifest's chunks, in order.
func (m *manifest) chunkParts() []string {
	prefix := chunkPrefix(m.Position, m.attempt)
	parts := make([]string, m.chunks)
	for i := range parts {
		parts[i] = chunkPart(prefix, i)
	}
	return parts
}

// parseChunkPart reads from a chunk's sort key which attempt at which position it belongs to.
func parseChunkPart(part string) (at fence.Position, attempt string, ok bool) {
	f := strings.Split(strings.TrimPrefix(part, chunkRoot), "/")
	if len(f) != 4 {
		return fence.Position{}, "", false
	}
	epoch, err1 := strconv.ParseUint(f[0], 16, 64)
	seq, err2 := strconv.ParseUint(f[1], 16, 64)
	return fence.Position{Epoch: fence.Epoch(epoch), Seq: fence.Seq(seq)}, f[2], err1 == nil && err2 == nil
}

func key(tile fence.TileID, part string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"tile": text(tile.String()), "part": text(part)}
}

func tileOf(item map[string]types.AttributeValue) (fence.TileID, error) {
	r := itemReader{dynamotx.Reader{Item: item}}
	s := r.Text("tile")
	if r.Err != nil {
		return 0, r.Err
	}
	return fence.ParseTileID(s)
}

var text, number = dynamotx.Text[string], dynamotx.Number[uint64]
