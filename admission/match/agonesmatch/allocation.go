package agonesmatch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/fence"
)

const (
	// LabelMatch is the label of a game server's match: its ID, or for one that no label can have, the beginning of its
	// SHA-256 in hexadecimal.
	LabelMatch = "tilefence-match"
	// AnnotationMatch is the annotation with the match itself, a match.Match as JSON.
	AnnotationMatch = "tilefence-match"
)

// Bounds of what an allocation sends and takes.
const (
	maxMatch   = 200 << 10 // bytes of AnnotationMatch; all annotations have 256 KiB in Kubernetes
	maxName    = 253       // bytes of a name in Kubernetes
	maxPorts   = 64
	labelBytes = 63
)

// States of an answer.
const (
	allocated   = "Allocated"
	unallocated = "UnAllocated"
	contention  = "Contention"
)

// allocation is a GameServerAllocation of Agones: of its fields, those that are used.
type allocation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Selectors  []gameServers `json:"selectors"`
		Scheduling string        `json:"scheduling"`
		Metadata   metadata      `json:"metadata"`
	} `json:"spec"`
}

// gameServers is a GameServerSelector of Agones.
type gameServers struct {
	MatchLabels map[string]string `json:"matchLabels"`
	State       string            `json:"gameServerState"`
}

type metadata struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// request is the body of a request for a match's game server.
func (a *Allocator) request(m match.Match) ([]byte, error) {
	text, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	if len(text) > maxMatch {
		return nil, &fence.ArgumentError{Field: "match", Value: fmt.Sprintf("%s: %d bytes of JSON", m.ID, len(text)),
			Want: fmt.Sprintf("at most %d, for an annotation: give tickets fewer or shorter attributes", maxMatch)}
	}
	r := allocation{APIVersion: "allocation.agones.dev/v1", Kind: "GameServerAllocation"}
	r.Spec.Selectors = []gameServers{{a.with(label(m.ID)), "Allocated"}, {a.labels, "Ready"}} // in this order
	r.Spec.Scheduling = "Packed"
	r.Spec.Metadata = metadata{map[string]string{LabelMatch: label(m.ID)},
		map[string]string{AnnotationMatch: string(text)}}
	return json.Marshal(r)
}

// with is the labels of a match's game server.
func (a *Allocator) with(label string) map[string]string {
	all := maps.Clone(a.labels)
	all[LabelMatch] = label
	return all
}

var (
	labelForm = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
	labelName = regexp.MustCompile(`^([A-Za-z0-9.-]+/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$`)
)

// label is what stands for a match in LabelMatch.
func label(id string) string {
	if len(id) <= labelBytes && labelForm.MatchString(id) {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:16])
}

// selector is labels as a query has them.
func selector(labels map[string]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		all = append(all, name+"="+labels[name])
	}
	return strings.Join(all, ",")
}

// ask sends a request for a match's game server. state is allocated, unallocated or contention.
func (a *Allocator) ask(ctx context.Context, id string, body []byte) (g GameServer, state string, err error) {
	what := "allocate match " + id
	code, answer, err := a.cfg.do(ctx, what, "POST",
		"/apis/allocation.agones.dev/v1/namespaces/"+a.cfg.Namespace+"/gameserverallocations", body)
	switch {
	case err != nil:
		return g, "", err
	case !success(code):
		return g, "", refusal(what, code, answer)
	}
	if g, state, err = parse(answer, label(id)); err != nil {
		err = fmt.Errorf("agones: %s: %w", what, err)
	}
	return g, state, err
}

// parse reads an answer. Of an allocated game server it checks all that others will use, and that it has the label.
func parse(answer []byte, label string) (g GameServer, state string, err error) {
	var a struct {
		Status struct {
			State string `json:"state"`
			GameServer
			Metadata *metadata `json:"metadata"` // of the game server; older releases leave it out
		} `json:"status"`
	}
	bad := func(what string, value any) (GameServer, string, error) {
		return GameServer{}, "", fmt.Errorf("%w: %s is %.100q", ErrAnswer, what, fmt.Sprint(value))
	}
	if err := json.Unmarshal(answer, &a); err != nil {
		return GameServer{}, "", fmt.Errorf("%w: %w", ErrAnswer, err)
	}
	g, state = a.Status.GameServer, a.Status.State
	switch state {
	case unallocated, contention:
		return GameServer{}, state, nil
	case allocated:
	default:
		return bad("state", state)
	}
	if a.Status.Metadata != nil {
		g.Labels, g.Annotations = a.Status.Metadata.Labels, a.Status.Metadata.Annotations
		if g.Labels[LabelMatch] != label {
			return bad("the game server's label "+LabelMatch, g.Labels[LabelMatch])
		}
	}
	switch {
	case !fence.IsName(g.Name, maxName):
		return bad("gameServerName", g.Name)
	case !fence.IsName(g.Address, maxName) || strings.ContainsAny(g.Address, " /?#@"):
		return bad("address", g.Address)
	case len(g.Ports) > maxPorts:
		return bad("the number of ports", len(g.Ports))
	case !fence.IsName(g.contact(), fence.MaxContact):
		return bad("address and port", g.contact())
	}
	for _, p := range g.Ports {
		if p.Port < 1 || p.Port > 1<<16-1 || p.Name != "" && !fence.IsName(p.Name, labelBytes) {
			return bad("a port", p)
		}
	}
	return g, state, nil
}

// contact is the game server's address, with its first port.
func (g GameServer) contact() string {
	if len(g.Ports) == 0 {
		return g.Address
	}
	return net.JoinHostPort(g.Address, strconv.Itoa(g.Ports[0].Port))
}
