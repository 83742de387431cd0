package devstack

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// startDynamoDB returns the endpoint of a new, empty server.
func (s *Stack) startDynamoDB(ctx context.Context, path string) (string, error) {
	dir, err := s.dir.sub("dynamodb", nil)
	if err != nil {
		return "", err
	}
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		port, err := s.ports.pick(s.cfg.Host)
		if err != nil {
			return nil, err
		}
		addr := hostPort(s.cfg.Host, port)
		host, _, _ := strings.Cut(addr, fmt.Sprintf(":%d", port)) // an address of IPv6 in brackets
		return []*Process{{
			name: "dynamodb", addr: addr, stack: s,
			program: program{
				path:     path,
				args:     []string{"serve", "--host", host, "--port", strconv.Itoa(port)},
				dir:      dir,
				stop:     syscall.SIGTERM,
				orphaned: syscall.SIGKILL,
			},
			ready: func(context.Context, int) error {
				// Its own word that it has the port: another server there would answer just the same.
				return logSays(filepath.Join(dir, logName), "listening on http://"+addr)
			},
		}}, nil
	})
	if err != nil {
		return "", err
	}
	if s.cfg.Certificates == nil {
		return "http://" + processes[0].addr, nil
	}
	if s.proxy, err = newTLSProxy(s.cfg.Certificates.Mutual(), processes[0].addr); err != nil {
		return "", err
	}
	return "https://" + s.proxy.listener.Addr().String(), nil
}

// logSays returns nil if the file contains text.
func logSays(path, text string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(content), text) {
		return fmt.Errorf("its log does not yet say %q", text)
	}
	return nil
}
