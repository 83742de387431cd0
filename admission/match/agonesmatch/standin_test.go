package agonesmatch_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/admission/match/agonesmatch"
)

// api is a stand-in of the API server with Agones: it takes requests of the documented form alone, and answers as its
// documents say. Its token is "secret", its namespace "games".
type api struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex
	servers []*gameServer
	asked   int
	answer  func(w http.ResponseWriter, n int) bool // in place of request n, from 1; nil or false: no
	lose    func(n int) bool                        // the answer to request n is lost
	lags    bool                                    // its cache does not show what was allocated lately
}

// gameServer is one of the stand-in's.
type gameServer struct {
	name, state         string
	port                int
	labels, annotations map[string]string
}

func start(t *testing.T, servers int) *api {
	a := &api{t: t}
	for i := range servers {
		a.servers = append(a.servers, &gameServer{name: fmt.Sprint("battles-", i), state: "Ready", port: 7000 + i,
			labels: map[string]string{"agones.dev/fleet": "battles"}, annotations: map[string]string{}})
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /apis/allocation.agones.dev/v1/namespaces/games/gameserverallocations", a.allocate)
	mux.HandleFunc("DELETE /apis/agones.dev/v1/namespaces/games/gameservers", a.remove)
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// config is that of an allocator of the stand-in.
func (a *api) config() *agonesmatch.Config {
	return &agonesmatch.Config{Server: a.URL, Namespace: "games", Client: a.Client(),
		Token: func() (string, error) { return "secret", nil }}
}

// documented is a GameServerAllocation as Agones documents it.
type documented struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Selectors []struct {
			MatchLabels     map[string]string `json:"matchLabels"`
			GameServerState string            `json:"gameServerState"`
		} `json:"selectors"`
		Scheduling string `json:"scheduling"`
		Metadata   struct {
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
	} `json:"spec"`
}

// refuse answers with a Status of Kubernetes.
func refuse(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"reason": reason, "message": "no: " + reason, "code": code})
}

func (a *api) allocate(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked++
	if r.Header.Get("Authorization") != "Bearer secret" {
		refuse(w, http.StatusUnauthorized, "Unauthorized")
		return
	}
	if a.answer != nil && a.answer(w, a.asked) {
		return
	}
	var g documented
	body, err := io.ReadAll(r.Body)
	in := json.NewDecoder(strings.NewReader(string(body)))
	in.DisallowUnknownFields()
	if err == nil {
		err = in.Decode(&g)
	}
	if err != nil || g.APIVersion != "allocation.agones.dev/v1" || g.Kind != "GameServerAllocation" ||
		g.Spec.Scheduling != "Packed" || r.Header.Get("Content-Type") != "application/json" {
		a.t.Errorf("a request of another form (%v): %s", err, body)
		refuse(w, http.StatusBadRequest, "BadRequest")
		return
	}
	status := map[string]any{"state": "UnAllocated"}
	if chosen := a.choose(&g); chosen != nil {
		chosen.state = "Allocated"
		maps.Copy(chosen.labels, g.Spec.Metadata.Labels)
		maps.Copy(chosen.annotations, g.Spec.Metadata.Annotations)
		status = map[string]any{"state": "Allocated", "gameServerName": chosen.name, "address": "203.0.113.7",
			"addresses": []any{map[string]string{"type": "ExternalIP", "address": "203.0.113.7"}},
			"ports":     []any{map[string]any{"name": "play", "port": chosen.port}},
			"nodeName":  "node-1", "source": "local",
			"metadata": map[string]any{"labels": chosen.labels, "annotations": chosen.annotations}}
	}
	if a.lose != nil && a.lose(a.asked) {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	assert.NoError(a.t, json.NewEncoder(w).Encode(map[string]any{"apiVersion": g.APIVersion, "kind": g.Kind,
		"metadata": map[string]any{"namespace": "games"}, "spec": g.Spec, "status": status}))
}

// choose is the first game server that the first selector with any has. The mutex is held.
func (a *api) choose(g *documented) *gameServer {
	for _, s := range g.Spec.Selectors {
		if a.lags && s.GameServerState == "Allocated" {
			continue
		}
		for _, server := range a.servers {
			if server.state == s.GameServerState && has(server, s.MatchLabels) {
				return server
			}
		}
	}
	return nil
}

func has(s *gameServer, labels map[string]string) bool {
	for name, value := range labels {
		if s.labels[name] != value {
			return false
		}
	}
	return true
}

// remove is deletecollection.
func (a *api) remove(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	labels := map[string]string{}
	for pair := range strings.SplitSeq(r.URL.Query().Get("labelSelector"), ",") {
		name, value, _ := strings.Cut(pair, "=")
		labels[name] = value
	}
	if r.Header.Get("Authorization") != "Bearer secret" || len(labels) < 2 {
		refuse(w, http.StatusForbidden, "Forbidden")
		return
	}
	a.servers = slices.DeleteFunc(a.servers, func(s *gameServer) bool { return has(s, labels) })
	_, _ = w.Write([]byte(`{"kind":"GameServerList","apiVersion":"agones.dev/v1","items":[]}`))
}

// count is how many game servers are in a state.
func (a *api) count(state string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, s := range a.servers {
		if s.state == state {
			n++
		}
	}
	return n
}
