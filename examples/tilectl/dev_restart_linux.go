package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tilefence/tilefence/internal/devstack"
)

// envDev has the socket at which a tilectl dev takes orders, in the environment of its command.
const envDev = "TILEFENCE_DEV"

// takeOrders restarts servers when it is asked to, until stop is called.
func takeOrders(stack *devstack.Stack) (socket string, stop func(), err error) {
	dir, err := os.MkdirTemp("", "tilectl-dev-")
	if err != nil {
		return "", nil, err
	}
	socket = filepath.Join(dir, "orders")
	l, err := net.Listen("unix", socket)
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	orders := http.NewServeMux()
	orders.HandleFunc("POST /restart/{server}", func(w http.ResponseWriter, r *http.Request) {
		p, ok := stack.Process(r.PathValue("server"))
		if !ok {
			var all []string
			for _, p := range stack.Processes() {
				all = append(all, p.Name())
			}
			http.Error(w, fmt.Sprintf("there is no server %q; there are %s", r.PathValue("server"),
				strings.Join(all, ", ")), http.StatusNotFound)
			return
		}
		if err := p.Restart(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	})
	server := &http.Server{Handler: orders, ReadHeaderTimeout: 5 * time.Second}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(l) // until stop
	}()
	return socket, func() {
		_ = server.Close()
		<-ended
		_ = os.RemoveAll(dir) // it is in the directory of temporary files
	}, nil
}

// restart has the tilectl dev around this process restart a server, and returns the exit status.
func restart(server string, stderr io.Writer) int {
	socket := os.Getenv(envDev)
	if socket == "" {
		report(stderr, "restart works in a command of tilectl dev, which sets %s", envDev)
		return statusFailed
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", socket)
		}}}
	answer, err := client.Post("http://dev/restart/"+server, "", nil)
	if err != nil {
		report(stderr, "restart %s: %v", server, err)
		return statusFailed
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		why, _ := io.ReadAll(answer.Body)
		report(stderr, "%s", strings.TrimSpace(string(why)))
		return statusFailed
	}
	return statusOK
}
