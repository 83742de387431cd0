package layering

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAHouseInOrderIsAccepted(t *testing.T) {
	require.Empty(t, check(house{
		".":                  {inside: []string{"admission", "fence/route", "relay"}, outside: []string{"fmt"}},
		"fence":              {inside: []string{"internal/clock"}, outside: []string{"context"}},
		"fence/redisfence":   {inside: []string{"fence"}, outside: []string{"github.com/redis/go-redis/v9"}},
		"fence/internal/sql": {inside: []string{"fence"}, outside: []string{"github.com/jackc/pgx/v5"}},
		"fence/pgfence":      {inside: []string{"fence", "fence/internal/sql"}},
		"stream":             {inside: []string{"fence"}},
		"stream/fanout":      {inside: []string{"fence", "stream"}},
		"tile":               {inside: []string{"fence", "stream"}},
		"tile/region":        {outside: []string{"github.com/uber/h3-go/v4"}},
		"admission":          {inside: []string{"fence", "tile"}},
		"examples/battle": {inside: []string{".", "admission", "fence/redisfence", "internal/devstack",
			"tile/region"}},
		"internal/clock":     {outside: []string{"time"}},
		"internal/devstack":  {outside: []string{"github.com/redis/go-redis/v9"}},
		"internal/benchmark": {inside: []string{"admission", "examples/battle", "internal/devstack"}},
		"internal/relaypb":   {outside: []string{"google.golang.org/protobuf/proto"}},
		"relay":              {inside: []string{"internal/relaypb", "stream/fanout"}},
		"checkpoint/dynamocheckpoint": {inside: []string{"checkpoint"},
			outside: []string{"github.com/aws/aws-sdk-go-v2/aws"}},
		"checkpoint": {outside: []string{"github.com/aws/aws-sdk-go-v2x/similar"}},
		"bridge":     {inside: []string{"stream"}},
		"bridge/prombridge": {inside: []string{"bridge"},
			outside: []string{"github.com/prometheus/client_golang/prometheus"}},
		"stream/fanout/redis": {inside: []string{"stream/fanout"}, outside: []string{"github.com/redis/go-redis/v9"}},
	}))
}

func TestEachRuleCanBeBroken(t *testing.T) {
	for name, tt := range map[string]struct {
		house house
		want  []string // beginnings of the violations
	}{
		"higher layer": {
			house{"fence": {inside: []string{"stream"}}},
			[]string{"fence -> stream: fence is on layer 1 and stream on layer 2"},
		},
		"higher layer from a back end": {
			house{"stream/redisstream": {inside: []string{"tile/region"}}},
			[]string{"stream/redisstream -> tile/region: "},
		},
		"same layer": {
			house{"relay": {inside: []string{"bridge", "stream"}}},
			[]string{"relay -> bridge: relay is on layer 3 and bridge on layer 3"},
		},
		"higher layer through internal packages": {
			house{
				"stream":     {inside: []string{"internal/a"}},
				"internal/a": {inside: []string{"internal/b", "fence"}},
				"internal/b": {inside: []string{"admission", "internal/a"}},
			},
			[]string{"stream -> internal/a -> internal/b -> admission: "},
		},
		"product imports an example": {
			house{"admission": {inside: []string{"examples/battle"}}},
			[]string{"admission -> examples/battle: "},
		},
		"product imports the root": {
			house{"tile": {inside: []string{"."}}, ".": {}},
			[]string{"tile -> .: tile is on layer 3 and . on layer 5"},
		},
		"root imports an example": {
			house{".": {inside: []string{"examples/battle"}}},
			[]string{". -> examples/battle: . is on layer 5 and examples on layer 7"},
		},
		"root links a driver": {
			house{
				".":             {inside: []string{"fence/pgfence"}},
				"fence/pgfence": {outside: []string{"github.com/jackc/pgx/v5"}},
			},
			[]string{". -> fence/pgfence -> github.com/jackc/pgx/v5: . is a concept"},
		},
		"root starts servers": {
			house{".": {inside: []string{"internal/devstack"}}},
			[]string{". -> internal/devstack: only tests"},
		},
		"unknown family": {
			house{"util/text": {}},
			[]string{`util/text: the family "util" has no layer`},
		},
		"import of an unknown family": {
			house{"tile": {inside: []string{"util/text"}}},
			[]string{"tile -> util/text: "},
		},
		"concept links a driver": {
			house{"fence": {outside: []string{"errors", "github.com/redis/go-redis/v9"}}},
			[]string{"fence -> github.com/redis/go-redis/v9: fence is a concept"},
		},
		"concept links its own back end": {
			house{
				"stream/fanout":             {inside: []string{"stream/fanout/redisfanout"}},
				"stream/fanout/redisfanout": {outside: []string{"github.com/redis/go-redis/v9"}},
			},
			[]string{"stream/fanout -> stream/fanout/redisfanout -> github.com/redis/go-redis/v9: "},
		},
		"concept links a lower layer's back end": {
			house{
				"tile":          {inside: []string{"fence/pgfence"}},
				"fence/pgfence": {outside: []string{"github.com/jackc/pgx/v5/pgxpool"}},
			},
			[]string{"tile -> fence/pgfence -> github.com/jackc/pgx/v5/pgxpool: "},
		},
		"concept links a driver through an internal package": {
			house{
				"checkpoint":   {inside: []string{"internal/aws"}},
				"internal/aws": {outside: []string{"github.com/aws/aws-sdk-go-v2/service/dynamodb"}},
			},
			[]string{"checkpoint -> internal/aws -> github.com/aws/aws-sdk-go-v2/service/dynamodb: "},
		},
		"fence knows H3": {
			house{"fence/route": {outside: []string{"github.com/uber/h3-go/v4"}}},
			[]string{"fence/route -> github.com/uber/h3-go/v4: fence knows nothing of H3"},
		},
		"stream knows H3 through an internal package": {
			house{
				"stream":       {inside: []string{"internal/geo"}},
				"internal/geo": {outside: []string{"github.com/uber/h3-go/v4"}},
			},
			[]string{"stream -> internal/geo -> github.com/uber/h3-go/v4: "},
		},
		"product starts servers": {
			house{"fence/redisfence": {inside: []string{"internal/devstack"}}},
			[]string{"fence/redisfence -> internal/devstack: only tests"},
		},
		"product links a NATS server": {
			house{"stream/fanout/natsfanout": {outside: []string{"github.com/nats-io/nats-server/v2/server"}}},
			[]string{"stream/fanout/natsfanout -> github.com/nats-io/nats-server/v2/server: only tests"},
		},
		"internal package starts a NATS server": {
			house{"internal/harness": {inside: []string{"internal/natstest"}}, "internal/natstest": {
				outside: []string{"github.com/nats-io/nats-server/v2/server"}}},
			[]string{"internal/harness -> internal/natstest: only tests"},
		},
		"product starts servers in a roundabout way": {
			house{
				"relay":               {inside: []string{"internal/harness"}},
				"internal/harness":    {inside: []string{"internal/devstack/stacktest"}},
				"internal/devstackly": {},
			},
			[]string{"relay -> internal/harness -> internal/devstack/stacktest: only tests"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			found := check(tt.house)
			require.Len(t, found, len(tt.want), "%q", found)
			for i, want := range tt.want {
				require.Contains(t, found[i], want)
				require.Equal(t, want, found[i][:len(want)])
			}
		})
	}
}

func TestEveryDriverIsForbiddenToEveryConcept(t *testing.T) {
	for _, concept := range concepts {
		for _, driver := range drivers {
			require.Len(t, check(house{concept: {outside: []string{driver + "/v2/sub"}}}), 1, "%s -> %s", concept,
				driver)
		}
	}
}

func TestSourceIsRead(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	const violation = "import _ \"example.org/m/tile\"\n"
	write("go.mod", "module example.org/m\n\ngo 1.26\n")
	write("doc.go", "package m\n")
	write("fence/fence.go", "package fence\nimport (\n\t\"fmt\"\n\tother \"example.org/m/stream\"\n)\n")
	write("fence/more.go",
		"//go:build windows\n\npackage fence\nimport \"example.org/mm/x\"\nimport \"example.org/m\"\n")
	write("fence/fence_test.go", "package fence\n"+violation)
	write("fence/generate.go", "//go:build ignore\n\npackage main\n"+violation)
	write("fence/testdata/x.go", "package x\n"+violation)
	write(".hidden/x.go", "package x\n"+violation)
	write("_off/x.go", "package x\n"+violation)
	write("vendor/x/x.go", "package x\n"+violation)
	write("tools/go.mod", "module example.org/tools\n")
	write("tools/x.go", "package x\n"+violation)

	h, err := readModule(root)
	require.NoError(t, err)
	require.Equal(t, house{
		".":     {},
		"fence": {inside: []string{".", "stream"}, outside: []string{"example.org/mm/x", "fmt"}},
	}, h)

	write("stream/broken.go", "package stream\nimport \"unterminated\n")
	_, err = readModule(root)
	require.ErrorContains(t, err, "broken.go", "what cannot be read cannot be vouched for")
	_, err = readModule(t.TempDir())
	require.Error(t, err)
}
