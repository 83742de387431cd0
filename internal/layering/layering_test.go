// Package layering enforces which package may import which. It has nothing but tests. The rules stand in this
// file, what reads the source in source_test.go, and the proof that each rule can be broken in selftest_test.go.
package layering

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// root is the path of the module's root package, which puts all others together.
const root = "."

// layers gives every top-level family of packages its layer. A package imports lower layers and its own
// family, nothing else of the module; internal packages, which have no layer, are seen through: what they
// import counts as imported by the packages that import them. The root package is a family of its own, above
// everything but the examples.
var layers = map[string]int{
	"fence":      1,
	"stream":     2,
	"tile":       3,
	"bridge":     3,
	"checkpoint": 3,
	"relay":      3,
	"admission":  4,
	root:         5,
	"inspect":    6,
	"metrics":    6,
	"clients":    6,
	"examples":   7,
}

// concepts are the packages that game servers import for their types and interfaces. They link no driver,
// directly or through any package of the module; drivers belong into leaf packages named for them.
var concepts = []string{
	root, "admission", "admission/match", "admission/match/matchhttp", "bridge", "checkpoint", "fence", "fence/route",
	"fence/route/directory", "inspect", "relay", "relay/session", "relay/viewcache", "stream", "stream/fanout",
	"stream/fanout/tiered", "stream/share", "tile", "tile/plan", "tile/tilehost", "tile/warp",
}

var drivers = []string{
	"github.com/aws/aws-sdk-go-v2",
	"github.com/aws/smithy-go",
	"github.com/hashicorp/memberlist",
	"github.com/jackc/pgx",
	"github.com/nats-io",
	"github.com/prometheus",
	"github.com/redis/go-redis",
	"go.opentelemetry.io",
	"modernc.org/sqlite",
}

// h3 needs cgo, which families without geography must not require.
const h3 = "github.com/uber/h3-go"

var withoutH3 = []string{"fence", "stream"}

// devstack starts servers for tests and for the examples; no product package may contain it.
const devstack = "internal/devstack"

// natstest contains a NATS server, which no binary may.
const natstest = "internal/natstest"

func TestPackagesImportOnlyWhatTheirLayerAllows(t *testing.T) {
	house, err := readModule("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, violation := range check(house) {
		t.Error(violation)
	}
}

// A rule about a package that was renamed would hold for ever.
func TestTheRulesNameWhatExists(t *testing.T) {
	house, err := readModule("../..")
	if err != nil {
		t.Fatal(err)
	}
	families := make(map[string]bool)
	for path := range house {
		families[familyOf(path)] = true
	}
	for family := range layers {
		if !families[family] {
			t.Errorf("the family %s has a layer, but no package", family)
		}
	}
	for _, path := range append([]string{devstack, natstest}, concepts...) {
		if _, exists := house[path]; !exists {
			t.Errorf("there are rules for %s, but there is no such package", path)
		}
	}
}

// pkg is what a package imports, test files aside.
type pkg struct {
	inside  []string // packages of the module, by their path in it
	outside []string // all others, by import path
}

// house is the packages of the module by their path in it; the root package is root.
type house map[string]pkg

// check returns one message for each violation, in a fixed order.
func check(h house) []string {
	var found []string
	for _, path := range slices.Sorted(maps.Keys(h)) {
		found = append(found, checkServers(h, path)...)
		switch family := familyOf(path); {
		case family == "internal":
		case layers[family] == 0:
			found = append(found, fmt.Sprintf("%s: the family %q has no layer; give it one in package layering", path,
				family))
		default:
			found = append(found, checkLayers(h, path)...)
			found = append(found, checkDevstack(h, path)...)
			found = append(found, checkH3(h, path)...)
			found = append(found, checkDrivers(h, path)...)
		}
	}
	return found
}

func checkLayers(h house, path string) []string {
	own := familyOf(path)
	var found []string
	walk(h, path, throughInternal, func(chain []string, p pkg) {
		for _, imported := range p.inside {
			family := familyOf(imported)
			if family == "internal" || family == own {
				continue
			}
			if _, exists := layers[family]; exists && layers[family] < layers[own] {
				continue
			}
			found = append(found, fmt.Sprintf("%s: %s is on layer %d and %s on layer %d; import only lower layers",
				arrow(chain, imported), own, layers[own], family, layers[family]))
		}
	})
	return found
}

func checkDevstack(h house, path string) []string {
	if familyOf(path) == "examples" {
		return nil
	}
	var found []string
	walk(h, path, throughInternal, func(chain []string, p pkg) {
		for _, imported := range p.inside {
			if within(imported, devstack) {
				found = append(found, fmt.Sprintf("%s: only tests, examples and internal packages may start servers",
					arrow(chain, imported)))
			}
		}
	})
	return found
}

// natsServer is linked by tests only, through natstest.
const natsServer = "github.com/nats-io/nats-server"

func checkServers(h house, path string) []string {
	var found []string
	for _, imported := range h[path].inside {
		if within(imported, natstest) {
			found = append(found, fmt.Sprintf("%s -> %s: only tests may start a NATS server", path, imported))
		}
	}
	for _, imported := range h[path].outside {
		if within(imported, natsServer) && !within(path, natstest) {
			found = append(found, fmt.Sprintf("%s -> %s: only tests may start a NATS server", path, imported))
		}
	}
	return found
}

func checkH3(h house, path string) []string {
	if !slices.Contains(withoutH3, familyOf(path)) {
		return nil
	}
	var found []string
	walk(h, path, throughAll, func(chain []string, p pkg) {
		for _, imported := range p.outside {
			if within(imported, h3) {
				found = append(found, fmt.Sprintf("%s: %s knows nothing of H3 and needs no cgo", arrow(chain, imported),
					familyOf(path)))
			}
		}
	})
	return found
}

func checkDrivers(h house, path string) []string {
	if !slices.Contains(concepts, path) {
		return nil
	}
	var found []string
	walk(h, path, throughAll, func(chain []string, p pkg) {
		for _, imported := range p.outside {
			if slices.ContainsFunc(drivers, func(driver string) bool { return within(imported, driver) }) {
				found = append(found,
					fmt.Sprintf("%s: %s is a concept and links no driver; that is for a sub-package of its own",
						arrow(chain, imported), path))
			}
		}
	})
	return found
}

func throughAll(string) bool           { return true }
func throughInternal(path string) bool { return familyOf(path) == "internal" }

// walk calls visit for start and for every package that is reached from it by going through packages that
// through accepts, once each, with the shortest chain of imports that leads there.
func walk(h house, start string, through func(string) bool, visit func(chain []string, p pkg)) {
	seen := map[string]bool{start: true}
	queue := [][]string{{start}}
	for len(queue) > 0 {
		chain := queue[0]
		queue = queue[1:]
		p := h[chain[len(chain)-1]]
		visit(chain, p)
		for _, imported := range p.inside {
			if !seen[imported] && through(imported) {
				seen[imported] = true
				queue = append(queue, append(slices.Clone(chain), imported))
			}
		}
	}
}

func arrow(chain []string, imported string) string {
	return strings.Join(chain, " -> ") + " -> " + imported
}

func familyOf(path string) string {
	family, _, _ := strings.Cut(path, "/")
	return family
}

// within reports whether path is tree or below it. A Go import path may also continue a module's path with
// a version ("…/pgx/v5"), which is below it too.
func within(path, tree string) bool {
	return path == tree || strings.HasPrefix(path, tree+"/")
}
