package prommetrics

import (
	"github.com/tilefence/tilefence"
	"github.com/tilefence/tilefence/admission"
	"github.com/tilefence/tilefence/admission/gatewayws"
	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/bridge"
	"github.com/tilefence/tilefence/checkpoint"
	"github.com/tilefence/tilefence/relay"
	"github.com/tilefence/tilefence/relay/viewcache"
	"github.com/tilefence/tilefence/stream/fanout/tiered"
	"github.com/tilefence/tilefence/tile"
	"github.com/tilefence/tilefence/tile/tilehost"
)

// Measurable is what metrics can be attached to: the hooks of a part, or the configuration of a server, which has those
// of its parts.
type Measurable interface {
	tile.Hooks | tilehost.Hooks | bridge.Hooks | relay.Hooks | viewcache.Hooks | tiered.Hooks | checkpoint.Hooks |
		admission.Hooks | gatewayws.Hooks | match.Hooks |
		tilefence.TileServerConfig | tilefence.GatewayServerConfig | tilefence.BridgeServerConfig |
		tilefence.RelayServerConfig | tilefence.CheckpointServerConfig | tilefence.MatchServerConfig
}

// Attach attaches metrics to hooks; what they call already is still called. A Host.Configure of a tile server that
// replaces hooks takes them off again.
func Attach[H Measurable](m *Metrics, hooks *H) {
	switch h := any(hooks).(type) {
	case *tile.Hooks:
		m.tile(h)
	case *tilehost.Hooks:
		m.host(h)
	case *bridge.Hooks:
		m.bridge(h)
	case *relay.Hooks:
		m.relay(h)
	case *viewcache.Hooks:
		m.views(h)
	case *tiered.Hooks:
		m.tiered(h)
	case *checkpoint.Hooks:
		m.checkpoint(h)
	case *admission.Hooks:
		m.admission(h)
	case *gatewayws.Hooks:
		m.clients(h)
	case *match.Hooks:
		m.match(h)
	default:
		m.attachServer(h)
	}
}

// attachServer attaches metrics to the hooks in the configuration of a server.
func (m *Metrics) attachServer(cfg any) {
	switch h := cfg.(type) {
	case *tilefence.TileServerConfig:
		m.tile(&h.Host.Tile.Hooks)
		m.host(&h.Host.Hooks)
	case *tilefence.GatewayServerConfig:
		m.admission(&h.Gateway.Hooks)
		m.clients(&h.Clients.Hooks)
	case *tilefence.BridgeServerConfig:
		m.bridge(&h.Bridge.Hooks)
	case *tilefence.RelayServerConfig:
		m.relay(&h.Relay.Hooks)
	case *tilefence.CheckpointServerConfig:
		m.checkpoint(&h.Checkpoint.Hooks)
	case *tilefence.MatchServerConfig:
		m.match(&h.Worker.Hooks)
		m.match(&h.Supervisor.Hooks)
	}
}
