// Package kubernetes checks the manifests beside it. It is a module of its own, so that nobody who uses Tilefence has
// the types of Kubernetes among their modules.
package kubernetes

import (
	"bytes"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// stopTimeout is tilefence.StopTimeout, in seconds: TestStopTimeout compares them.
const stopTimeout = 25

// manifests are the objects of all files, each decoded strictly by the type of its kind.
type manifests struct {
	deployments map[string]*apps.Deployment
	services    map[string]*core.Service
	budgets     map[string]*policy.PodDisruptionBudget
	scalers     map[string]*autoscaling.HorizontalPodAutoscaler
	config      core.ConfigMap
	account     core.ServiceAccount
}

// load decodes every file that kustomization.yaml names, and wants it to name all.
func load(t *testing.T) *manifests {
	t.Helper()
	var kustomization struct {
		APIVersion, Kind string
		Resources        []string
		Images           []map[string]string
	}
	require.NoError(t, yaml.UnmarshalStrict(read(t, "kustomization.yaml"), &kustomization))
	files, err := filepath.Glob("*.yaml")
	require.NoError(t, err)
	require.ElementsMatch(t, slices.DeleteFunc(files, func(f string) bool { return f == "kustomization.yaml" }),
		kustomization.Resources)
	m := &manifests{map[string]*apps.Deployment{}, map[string]*core.Service{},
		map[string]*policy.PodDisruptionBudget{}, map[string]*autoscaling.HorizontalPodAutoscaler{}, core.ConfigMap{},
		core.ServiceAccount{}}
	for _, file := range kustomization.Resources {
		for _, document := range bytes.Split(read(t, file), []byte("\n---\n")) {
			var of struct {
				APIVersion, Kind string
				Metadata         struct{ Name string }
			}
			require.NoError(t, yaml.Unmarshal(document, &of))
			into := m.object(of.APIVersion+"/"+of.Kind, of.Metadata.Name)
			require.NotNil(t, into, "%s: %s/%s", file, of.APIVersion, of.Kind)
			require.NoError(t, yaml.UnmarshalStrict(document, into), file)
		}
	}
	return m
}

// object is where an object of a kind goes. Nil: the kind is unknown.
func (m *manifests) object(kind, name string) any {
	switch kind {
	case "apps/v1/Deployment":
		m.deployments[name] = new(apps.Deployment)
		return m.deployments[name]
	case "v1/Service":
		m.services[name] = new(core.Service)
		return m.services[name]
	case "policy/v1/PodDisruptionBudget":
		m.budgets[name] = new(policy.PodDisruptionBudget)
		return m.budgets[name]
	case "autoscaling/v2/HorizontalPodAutoscaler":
		m.scalers[name] = new(autoscaling.HorizontalPodAutoscaler)
		return m.scalers[name]
	case "v1/ConfigMap":
		return &m.config
	case "v1/ServiceAccount":
		return &m.account
	}
	return nil
}

func read(t *testing.T, parts ...string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(parts...))
	require.NoError(t, err)
	return text
}

// program is the source of the game that runs: that of "tilectl new".
func program(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, file := range []string{"main.go.tmpl", "parts.go.tmpl", "backends.go.tmpl"} {
		all.Write(read(t, "../../examples/tilectl/newgame", file))
	}
	return all.String()
}

// TestEveryActor has a deployment of its own, which selects its own pods, with a budget and a figure.
func TestEveryActor(t *testing.T) {
	m := load(t)
	actors := regexp.MustCompile(`"run", "([^"]+)"`).FindStringSubmatch(program(t))
	require.Len(t, actors, 2)
	var runs []string
	documented := string(read(t, "../../docs/metrics.md"))
	for name, d := range m.deployments {
		labels := d.Spec.Template.Labels
		require.Equal(t, name, labels["app.kubernetes.io/component"])
		require.Equal(t, labels, d.Spec.Selector.MatchLabels)
		container := d.Spec.Template.Spec.Containers[0]
		runs = append(runs, strings.TrimPrefix(container.Args[0], "-run="))
		require.NotNil(t, m.budgets[name], name)
		require.Equal(t, labels, m.budgets[name].Spec.Selector.MatchLabels)
		require.Equal(t, intstr.FromInt32(1), *m.budgets[name].Spec.MaxUnavailable)
		scaler := m.scalers[name]
		require.NotNil(t, scaler, name)
		require.Equal(t, autoscaling.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: name},
			scaler.Spec.ScaleTargetRef)
		require.GreaterOrEqual(t, *scaler.Spec.MinReplicas, int32(2), "one may be disrupted")
		require.Equal(t, *d.Spec.Replicas, *scaler.Spec.MinReplicas)
		metric := scaler.Spec.Metrics[0].Pods
		require.Contains(t, documented, "| `"+metric.Metric.Name+"` | gauge |", "a figure that is there")
		require.Positive(t, metric.Target.AverageValue.Value())
	}
	require.ElementsMatch(t, strings.Split(actors[1], ","), runs)
	require.Len(t, m.budgets, len(runs))
	require.Len(t, m.scalers, len(runs))
}

// TestTheProgramHasWhatItIsTold: every flag, variable, path and port is one that the program knows.
func TestTheProgramHasWhatItIsTold(t *testing.T) {
	m, source := load(t), program(t)
	guide := string(read(t, "../../docs/guides/kubernetes.md"))
	known := func(variable string) {
		// What AWS's own library reads is not in the program.
		assert.True(t, strings.HasPrefix(variable, "AWS_") || strings.Contains(source, `"`+variable+`"`), variable)
	}
	for variable := range m.config.Data {
		known(variable)
	}
	secrets := regexp.MustCompile(`--from-literal=([A-Z_]+)=`).FindAllStringSubmatch(guide, -1)
	require.Len(t, secrets, 3, "the guide makes the secret")
	given := slices.Collect(maps.Keys(m.config.Data))
	for _, s := range secrets {
		known(s[1])
		given = append(given, s[1])
	}
	for _, needed := range regexp.MustCompile(`[( ]env\("(TILEFENCE_[A-Z]+)"\)`).FindAllStringSubmatch(source, -1) {
		assert.Contains(t, given, needed[1], "the program does not start without it")
	}
	for name, d := range m.deployments {
		container := d.Spec.Template.Spec.Containers[0]
		var listens []string // ports
		hears := func(address string) {
			if host, port, err := net.SplitHostPort(address); err == nil && host == "0.0.0.0" {
				listens = append(listens, port)
			}
		}
		for _, arg := range container.Args {
			flag, value, ok := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
			require.True(t, ok, arg)
			assert.Contains(t, source, `flag.String("`+flag+`"`, name)
			hears(value)
		}
		for _, v := range container.Env {
			if v.Name != "POD_IP" { // which the others are made of
				known(v.Name)
				hears(v.Value)
			}
		}
		ports := map[string]string{}
		for _, p := range container.Ports {
			port := strconv.Itoa(int(p.ContainerPort))
			ports[p.Name] = port
			assert.Contains(t, listens, port, "%s: nothing listens at %s", name, p.Name)
		}
		for _, port := range listens {
			assert.Contains(t, slices.Collect(maps.Values(ports)), port, name)
		}
		live, ready := container.LivenessProbe.HTTPGet, container.ReadinessProbe.HTTPGet
		require.Equal(t, "/livez", live.Path)
		require.Equal(t, "/readyz", ready.Path)
		annotations := d.Spec.Template.Annotations
		for _, path := range []string{live.Path, ready.Path, annotations["prometheus.io/path"]} {
			assert.Contains(t, source, `p.ops.Handle("`+path+`"`)
		}
		for _, port := range []intstr.IntOrString{live.Port, ready.Port} {
			assert.Equal(t, ports["operator"], ports[port.StrVal])
		}
		assert.Contains(t, container.Args, "-operator=0.0.0.0:"+ports["operator"])
		assert.Equal(t, ports["operator"], annotations["prometheus.io/port"])
	}
}

// TestServices: each selects pods that have its port, and where a process names one, it is there.
func TestServices(t *testing.T) {
	m := load(t)
	for name, s := range m.services {
		d := m.deployments[name]
		require.NotNil(t, d, name)
		require.Equal(t, d.Spec.Selector.MatchLabels, s.Spec.Selector)
		for _, p := range s.Spec.Ports {
			require.True(t, slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports,
				func(c core.ContainerPort) bool { return c.Name == p.TargetPort.StrVal && c.ContainerPort == p.Port }))
		}
	}
	seeds := m.services["tiles"].Spec
	require.Equal(t, core.ClusterIPNone, seeds.ClusterIP)
	require.True(t, seeds.PublishNotReadyAddresses, "a seed need not be ready")
	for _, named := range []string{m.config.Data["TILEFENCE_GOSSIP_SEEDS"],
		strings.TrimPrefix(m.deployments["gateway"].Spec.Template.Spec.Containers[0].Args[2], "-view=")} {
		host, port, err := net.SplitHostPort(named)
		require.NoError(t, err)
		require.NotNil(t, m.services[host], named)
		require.Equal(t, port, strconv.Itoa(int(m.services[host].Spec.Ports[0].Port)))
	}
}

// TestPods end in time, run as no root, and tell the others the address of the pod.
func TestPods(t *testing.T) {
	m := load(t)
	for name, d := range m.deployments {
		pod := d.Spec.Template.Spec
		c := pod.Containers[0]
		var sleeps int64
		if c.Lifecycle != nil {
			sleeps = c.Lifecycle.PreStop.Sleep.Seconds
		}
		require.Greater(t, *pod.TerminationGracePeriodSeconds, sleeps+stopTimeout+5, name)
		require.True(t, *pod.SecurityContext.RunAsNonRoot)
		require.Contains(t, string(read(t, "Dockerfile")),
			"USER "+strconv.Itoa(int(*pod.SecurityContext.RunAsUser))+":")
		require.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
		require.Equal(t, m.account.Name, pod.ServiceAccountName)
		require.Equal(t, m.config.Name, c.EnvFrom[0].ConfigMapRef.Name)
		for _, v := range append(c.Args, values(c.Env)...) {
			if strings.Contains(v, "$(") {
				require.Contains(t, v, "$(POD_IP)")
				require.Equal(t, "status.podIP", c.Env[0].ValueFrom.FieldRef.FieldPath)
				require.Equal(t, "POD_IP", c.Env[0].Name, "a variable is known to those after it")
			}
		}
	}
	require.Contains(t, m.deployments["tiles"].Spec.Template.Spec.Containers[0].Args, "-contact=$(POD_IP):7000")
}

func values(env []core.EnvVar) (all []string) {
	for _, v := range env {
		all = append(all, v.Value)
	}
	return all
}

// TestStopTimeout is of the constant that the grace of a pod is compared with.
func TestStopTimeout(t *testing.T) {
	require.Regexp(t, `StopTimeout = `+strconv.Itoa(stopTimeout)+` \* time\.Second`, string(read(t, "../../run.go")))
}
