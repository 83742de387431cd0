package tilefence_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/route"
	"github.com/tilefence/tilefence/internal/wait/waittest"
	"github.com/tilefence/tilefence/stream"
	"github.com/tilefence/tilefence/tile"
)

// hall is a tile of guests. An intent names who comes in, or who leaves: "ann" or "ann>85283087fffffff".
type hall struct{ guests []string }

func (h *hall) Restore(b []byte) error {
	h.guests = strings.Fields(string(b))
	return nil
}

func (h *hall) Snapshot() ([]byte, error) { return []byte(strings.Join(h.guests, " ")), nil }

func (h *hall) Resolve(tick fence.Tick, intents []tile.Intent) ([][]byte, []stream.Outcome) {
	out := h.Play(tick, tile.Inputs{Intents: intents})
	return out.Events, out.Outcomes
}

func (h *hall) Play(_ fence.Tick, in tile.Inputs) (out tile.Outputs) {
	for _, i := range in.Intents {
		name, to, leaves := strings.Cut(string(i.Body), ">")
		event := "+" + name
		if leaves {
			var id fence.TileID
			if id.UnmarshalText([]byte(to)) != nil || !slices.Contains(h.guests, name) || in.Room(id, 0) == 0 {
				out.Outcomes = append(out.Outcomes, stream.Fizzled)
				continue
			}
			event = "-" + name
			out.Departures = append(out.Departures, stream.Departure{To: id, Entity: name, Actor: i.Actor})
		}
		out.Events, out.Outcomes = append(out.Events, []byte(event)), append(out.Outcomes, stream.Applied)
	}
	for _, a := range in.Arrivals {
		out.Events = append(out.Events, []byte("+"+a.Entity))
		out.Verdicts = append(out.Verdicts, tile.Verdict{})
	}
	for _, r := range in.Returns {
		out.Events = append(out.Events, []byte("+"+r.Entity))
	}
	return out
}

func (h *hall) Apply(_ fence.Tick, events [][]byte) error {
	for _, e := range events {
		name := string(e[1:])
		if h.guests = slices.DeleteFunc(h.guests, func(n string) bool { return n == name }); e[0] == '+' {
			h.guests = append(h.guests, name)
		}
	}
	return nil
}

func newHall(fence.TileID) (tile.Rules, error) { return &hall{}, nil }

// hallServer is a tile server of halls.
func hallServer(t *testing.T, b tilefence.Backends, cfg tilefence.TileServerConfig) *tilefence.TileServer {
	t.Helper()
	l := listen(t)
	cfg.Web.Listener = l
	cfg.Host.Tile.TickInterval = 20 * time.Millisecond
	s, err := tilefence.NewTileServer(l.Addr().String(), b, newHall, &cfg)
	require.NoError(t, err)
	return s
}

// guests are those in a tile that a server serves.
func guests(t *testing.T, s *tilefence.TileServer, id fence.TileID) (names []string) {
	t.Helper()
	p := s.Host().Processor(id)
	if p == nil || p.Status().State != tile.Serving {
		return nil
	}
	require.NoError(t, p.Inspect(t.Context(), func(r tile.Rules, _ fence.Position) {
		names = slices.Clone(r.(*hall).guests)
	}))
	return names
}

func says(t *testing.T, s *tilefence.TileServer, id fence.TileID, what string) {
	t.Helper()
	o, err := s.Submit(t.Context(), tile.Intent{Tile: id, Actor: "ann", Body: []byte(what)})
	require.NoError(t, err)
	require.Equal(t, stream.Applied, o.Outcome)
}

// A guest goes to a tile of another server, comes back to a tile that was handed over meanwhile, and goes to one that
// has no owner yet.
func TestAGuestCrossesBetweenServers(t *testing.T) {
	b := embedded(t)
	b.Keys = [][]byte{[]byte("a key of a deployment, long enough")}
	one, two := hallServer(t, b, tilefence.TileServerConfig{}), hallServer(t, b, tilefence.TileServerConfig{})
	first := start(t, one)
	start(t, two)
	require.NoError(t, one.Own(plaza))
	require.NoError(t, two.Own(harbour))
	await(t, one, plaza)
	await(t, two, harbour)
	says(t, one, plaza, "ann")
	says(t, one, plaza, "ann>"+harbour.String())
	waittest.Until(t, func() bool { return slices.Contains(guests(t, two, harbour), "ann") }, 10*time.Second,
		5*time.Millisecond)
	assert.Empty(t, guests(t, one, plaza))

	require.NoError(t, first.stop()) // its tile is handed over
	await(t, two, plaza)
	says(t, two, harbour, "ann>"+plaza.String())
	waittest.Until(t, func() bool { return slices.Contains(guests(t, two, plaza), "ann") }, 10*time.Second,
		5*time.Millisecond)
	assert.Empty(t, guests(t, two, harbour))

	three := hallServer(t, b, tilefence.TileServerConfig{Spawn: always})
	start(t, three)
	require.NoError(t, three.Own(harbour+1))
	await(t, three, harbour+1)
	says(t, three, harbour+1, "bob")
	says(t, three, harbour+1, "bob>"+(harbour+2).String())
	waittest.Until(t, func() bool { return slices.Contains(guests(t, three, harbour+2), "bob") }, 10*time.Second,
		5*time.Millisecond)
}

// The owner of the tile where a guest goes hangs with its connections open, as those of a machine that has lost its
// power are. The presentation goes to the next owner as soon as it is known, and not when the call has timed out.
func TestAGuestReachesTheOwnerAfterOneThatHangs(t *testing.T) {
	b := embedded(t)
	hung := listen(t)
	member, err := b.Members.Join(hung.Addr().String(), new(route.Table), nil, func(route.Event) {})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() { _ = member.Run(ctx) }()
	one, two := hallServer(t, b, tilefence.TileServerConfig{}), hallServer(t, b, tilefence.TileServerConfig{})
	start(t, one)
	start(t, two)
	require.NoError(t, one.Own(plaza))
	await(t, one, plaza)
	says(t, one, plaza, "ann")
	g, err := b.Authority.Claim(t.Context(), fence.Claim{Tile: harbour, Contact: hung.Addr().String(),
		ID: fence.NewClaimID()})
	require.NoError(t, err)
	require.NoError(t, member.Announce(route.Entry{Tile: harbour, Epoch: g.Epoch, Contact: g.Contact}))
	waittest.Until(t, func() bool { return one.Stats().Table.Held == 2 }, 10*time.Second, time.Millisecond)
	says(t, one, plaza, "ann>"+harbour.String())
	conn, err := hung.Accept()
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	asked := time.Now()
	require.NoError(t, two.Host().TakeOver(harbour))
	waittest.Until(t, func() bool { return slices.Contains(guests(t, two, harbour), "ann") }, 10*time.Second,
		5*time.Millisecond)
	assert.Less(t, time.Since(asked), 3*time.Second, "the call that hangs is bounded to 5 s")
}
