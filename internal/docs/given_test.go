package docs

// given are the names that a block of statements may use without declaring them, with their types. What a reader
// could not guess belongs into the block itself.
var given = map[string]string{
	"authority": "fence.Authority",
	"body":      "[]byte",
	"cfg":       "tile.Config",
	"client":    "*redis.ClusterClient",
	"ctx":       "context.Context",
	"ended":     "chan error",
	"errs":      "chan error",
	"host":      "*tilehost.Host",
	"id":        "fence.TileID",
	"log":       "stream.Log",
	"mux":       "*http.ServeMux",
	"payload":   "[]byte",
	"position":  "fence.Position",
	"price":     "func(context.Context, admission.Action) (admission.Action, error)",
	"publisher": "fanout.Publisher",
	"rules":     "tile.Rules",
	"seams":     "tile.Seams",
	"seq":       "fence.Seq",
	"store":     "fence.Store",
	"t":         "*testing.T",
	"tile":      "fence.TileID",
	"tiles":     "[]fence.TileID",
}

// givenIn are names with another type in one package, or names that only this package's blocks use.
var givenIn = map[string]map[string]string{
	".": {
		"b": "tilefence.Backends", "vault": "fence.TileID", "server": "*tilefence.TileServer",
		"mayInspect": "func(*http.Request) error", "key": "[]byte", "ours": "*x509.CertPool",
		"gateway": "*tilefence.GatewayServer", "watchers": "*tilefence.RelayServer",
		"welcome": "func(context.Context, string) error", "askForToken": "func(context.Context) (string, error)",
		"newGame": "tiletest.NewRules", "ledger": "*admission.AdmissionLedger",
		"authenticate": "session.AuthenticateFunc",
		"broker":       "tilefence.Fanout", "durable": "checkpoint.Backend", "workers": "share.Members",
		"newRules": "func(fence.TileID) (tile.Rules, error)",
		"queues":   "[]match.Queue", "arenaOf": "func(match.Match) fence.TileID",
		"duels": "match.Queue", "keys": "session.Keys", "lobby": "*match.Lobby", "seats": "*match.SeatAllocator",
		"ratingOf": "func(context.Context, []match.Player) (int, error)",
	},
	"admission": {
		"action": "admission.Action", "coordination": "route.OwnerReader", "intent": "tile.Intent",
		"store": "admission.Store", "table": "*route.Table", "tiles": "admission.Forwarder",
	},
	"admission/admissiontest": {"openMine": "func(*testing.T) admission.Store"},
	"admission/dynamoledger":  {"cfg": "aws.Config"},
	"admission/gatewayws": {
		"authenticate": "session.AuthenticateFunc", "credentials": "http.Header",
		"gateway": "*admission.Gateway",
	},
	"admission/match": {
		"backend": "interface { match.Store; match.Seats }", "id": "string", "players": "[]match.Player",
		"show": "func(match.Status) bool",
	},
	"admission/match/agonesmatch": {"place": "agonesmatch.PlaceFunc"},
	"admission/match/matchhttp": {
		"lobby": "*match.Lobby", "keys": "session.Keys", "rate": "func(context.Context, *match.Ticket) error",
	},
	"internal/matchtest":        {"newBackend": "func(*testing.T) match.Backend"},
	"checkpoint/checkpointtest": {"damage": "func(*testing.T, fence.TileID)"},
	"examples/battle/game": {
		"areas": "fence.AreaSet", "ground": "game.Ground", "more": "fence.AreaSet", "snapshot": "[]byte",
		"tick": "fence.Tick",
	},
	"examples/battle/spectator": {"api": "spectator.API", "relay": "http.Handler"},
	"fence/fencetest":           {"newHarness": "func(*testing.T) fencetest.StoreHarness"},
	"fence/redisfence":          {"addresses": "[]string", "commit": "fence.Commit"},
	"fence/route/gossip":        {"events": "chan route.Event"},
	"inspect": {
		"b": "tilefence.Backends", "server": "*tilefence.TileServer", "mayInspect": "func(*http.Request) error",
	},
	"internal/routetest":           {"newNetwork": "func(*testing.T) routetest.Network"},
	"internal/robustness/campaign": {"file": "*os.File"},
	"internal/robustness/check":    {"records": "[]history.Record"},
	"internal/robustness/history": {
		"path": "string", "paths": "[]string", "realAuthority": "fence.Authority", "realStore": "fence.Store",
	},
	"internal/sqlitedb": {"files": "fs.FS"},
	"metrics/oteltrace": {
		"addr": "string", "authenticate": "session.AuthenticateFunc", "b": "tilefence.Backends",
		"cfg": "tilefence.GatewayServerConfig", "exporter": "trace.SpanExporter",
	},
	"metrics/prommetrics": {
		"b": "tilefence.Backends", "bridge": "*tilefence.BridgeServer", "broker": "*redisfanout.Fanout",
		"cfg": "tilefence.TileServerConfig", "contact": "string", "lobby": "*match.Lobby", "m": "*prommetrics.Metrics",
		"newRules": "func(fence.TileID) (tile.Rules, error)",
	},
	"relay": {
		"broker": "fanout.Subscriber", "checkCookie": "func(*http.Request) error",
		"mayWatch": "relay.AuthorizeFunc",
		"areas":    "fence.AreaSet", "visible": "fence.AreaSet",
	},
	"relay/session": {"key": "[]byte"},
	"relay/relayclient": {
		"world": "interface { Restore(fence.TileID, []byte); Apply(fence.TileID, [][]byte) }",
	},
	"relay/viewcache": {
		"broker": "fanout.Subscriber", "client": "redis.UniversalClient", "key": "[]byte",
	},
	"relay/viewcache/redisviewcache": {"broker": "fanout.Subscriber", "key": "[]byte"},
	"internal/viewcachetest": {
		"openStore":   "func(*testing.T, *viewstore.Limits) viewstore.Store",
		"openBackend": "func(*testing.T, *viewstore.Limits) viewcachetest.Backend",
	},
	"stream/fanout":             {"publisher": "fanout.HintPublisher"},
	"stream/fanout/fanouttest":  {"newBackend": "func(*testing.T) fanouttest.Backend"},
	"stream/fanout/memfanout":   {"frame": "[]byte", "frames": "chan []byte"},
	"stream/fanout/natsfanout":  {"deliver": "func([]byte)", "messages": "[]fanout.Message"},
	"stream/fanout/redisfanout": {"deliver": "func([]byte)", "messages": "[]fanout.Message"},
	"stream/fanout/tiered": {"deliver": "func([]byte)", "messages": "[]fanout.Message",
		"ordinary": "tiered.OrdinaryTier", "broker": "tiered.BrokerTier"},
	"stream/share":            {"members": "share.Members", "target": "share.Target"},
	"stream/share/redisshare": {"target": "share.Target"},
	"internal/directorytest":  {"newBackend": "func(*testing.T) directorytest.Backend"},
	"fence/route/directory":   {"handler": "interface { EndActor(string) int; Tell(string, []byte) int }"},
	"internal/sharetest":      {"newBackend": "func(*testing.T) sharetest.Backend"},
	"stream/streamtest":       {"newHarness": "func(*testing.T) streamtest.Harness"},
	"tile/plan": {
		"planner": "plan.Planner", "plans": "plan.Store", "sink": "plan.Sink",
	},
	"tile/plan/memplan": {"planner": "plan.Planner"},
	"internal/plantest": {"newStore": "func(*testing.T) plan.Store"},
	"tile/tilehost": {
		"mine": "[]fence.TileID", "announce": "func(fence.Owner)",
		"newRules": "func(fence.TileID) (tile.Rules, error)", "theirs": "[]fence.TileID",
	},
	"tile/tiletest": {"newGame": "tiletest.NewRules", "randomIntent": "tiletest.Generator", "names": "tiletest.Census"},
	"tile/tilehttp": {"ledger": "*admission.AdmissionLedger", "router": "*route.Router"},
}

// outside are the packages of other modules and of the standard library that blocks may use.
var outside = []string{
	"context", "crypto/sha256", "crypto/tls", "crypto/x509", "errors", "fmt", "io/fs", "log/slog",
	"math/rand/v2", "net/http", "os", "testing",
	"testing/synctest", "time",
	"github.com/aws/aws-sdk-go-v2/aws",
	"github.com/aws/aws-sdk-go-v2/config",
	"github.com/aws/aws-sdk-go-v2/service/dynamodb",
	"github.com/jackc/pgx/v5/pgxpool",
	"github.com/prometheus/client_golang/prometheus",
	"github.com/prometheus/client_golang/prometheus/promhttp",
	"github.com/redis/go-redis/v9",
	"go.opentelemetry.io/otel/sdk/trace",
}
