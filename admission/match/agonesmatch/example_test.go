package agonesmatch_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/admission/match/agonesmatch"
	"github.com/tilefence/tilefence/fence"
)

func Example() {
	// In a cluster, a nil Config finds the API server of the pod. This one answers as it does.
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
		_, _ = fmt.Fprint(w, `{"status":{"state":"Allocated","gameServerName":"battles-x7k2q","address":"203.0.113.7",
			"ports":[{"name":"play","port":7001}]}}`)
	}))
	defer server.Close()
	place := func(_ match.Match, g agonesmatch.GameServer) (fence.TileID, map[string]string) {
		at := fmt.Sprintf("ws://%s:%d", g.Address, g.Ports[0].Port)
		return 0x85283473fffffff, map[string]string{"gateway": at + "/intent", "relay": at + "/view"}
	}
	allocator, err := agonesmatch.New(map[string]string{"agones.dev/fleet": "battles"}, place,
		&agonesmatch.Config{Server: server.URL, Namespace: "games"})
	if err != nil {
		panic(err)
	}
	// A match server asks it: tilefence.MatchServerConfig.Allocator.
	for _, a := range allocator.Allocate(context.Background(), []match.Match{{ID: "m1", Tickets: []match.Ticket{
		{ID: "t1", Players: []match.Player{{ID: "ann"}}}}}}) {
		fmt.Println(a.Assignment.Contact, a.Assignment.Info["gateway"], a.Assignment.Seats, a.Err)
	}
	// Output: 203.0.113.7:7001 ws://203.0.113.7:7001/intent map[t1:[0]] <nil>
}
