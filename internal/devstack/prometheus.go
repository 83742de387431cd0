package devstack

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
)

// StartPrometheus starts a Prometheus that reads GET /metrics of an address each second, and returns its URL. It keeps
// its files in dir, and ends with the stack. errors.Is finds exec.ErrNotFound if it is not installed.
func (s *Stack) StartPrometheus(ctx context.Context, page, dir string) (string, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "prometheus.yml")
	text := fmt.Sprintf("global: {scrape_interval: 1s}\nscrape_configs:\n"+
		"- {job_name: tilefence, static_configs: [{targets: ['%s']}]}\n", page)
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
	_, err = s.Launch(ctx, Program{Name: "prometheus", Addr: address, Path: program,
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
