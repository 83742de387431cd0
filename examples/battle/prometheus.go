package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/tilefence/tilefence/internal/devstack"
)

// startPrometheus starts a Prometheus that reads the figures of the page at an address each second, and returns its
// URL. It ends with the stack. errors.Is finds exec.ErrNotFound if it is not installed.
func startPrometheus(ctx context.Context, stack *devstack.Stack, page, dir string) (string, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n"+
		"- {job_name: battle, static_configs: [{targets: ['%s']}]}\n", page)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return "", err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") // Prometheus does not say which port it has taken
	if err != nil {
		return "", err
	}
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		return "", err
	}
	url := "http://" + address
	_, err = stack.Launch(ctx, devstack.Program{Name: "prometheus", Addr: address, Path: program,
		Args: []string{"--config.file=" + config, "--storage.tsdb.path=" + filepath.Join(dir, "prometheus"),
			"--web.listen-address=" + address},
		Ready: func(ctx context.Context, _ int) error {
			ctx, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/-/ready", nil)
			if err != nil {
				return err
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			if answer.StatusCode != http.StatusOK {
				return errors.New(answer.Status)
			}
			return nil
		}})
	return url, err
}

// observe starts Prometheus beside servers that this process has started, where it is installed.
func (d *deployment) observe() error {
	stack := d.backends.stack
	switch {
	case stack == nil:
		return nil
	case d.secure != nil:
		d.say("Prometheus is not started: the figures of a secure battle are not for every program\n")
		return nil
	}
	url, err := startPrometheus(context.Background(), stack, d.page.Addr().String(), d.dir)
	switch {
	case errors.Is(err, exec.ErrNotFound):
		d.say("Prometheus is not started: it is not installed (on Debian, apt-get install prometheus)\n")
	case err != nil:
		return err
	default:
		d.say("  Prometheus:        %s/\n\n", url)
	}
	return nil
}
