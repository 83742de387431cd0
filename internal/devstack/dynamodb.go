package devstack

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// startDynamoDB returns the endpoint of a new, empty server.
func (s *Stack) startDynamoDB(ctx context.Context, path string) (string, error) {
	dir, err := s.dir.sub("dynamodb", nil)
	if err != nil {
		return "", err
	}
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		port, err := s.ports.pick(sharedHost)
		if err != nil {
			return nil, err
		}
		addr := hostPort(sharedHost, port)
		return []*Process{{
			name: "dynamodb", addr: addr, stack: s,
			program: program{
				path:     path,
				args:     []string{"serve", "--host", sharedHost, "--port", strconv.Itoa(port)},
				dir:      dir,
				stop:     syscall.SIGTERM,
				orphaned: syscall.SIGKILL,
			},
			ready: func(ctx context.Context, _ int) error {
				// Its own word that it has the port: another server there would answer just the same.
				if err := logSays(filepath.Join(dir, logName), "listening on http://"+addr); err != nil {
					return err
				}
				return pingDynamoDB(ctx, "http://"+addr)
			},
		}}, nil
	})
	if err != nil {
		return "", err
	}
	return "http://" + processes[0].addr, nil
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

// pingDynamoDB lists the tables. The request is written by hand so that starting a stack does not link
// the AWS SDK; the server does not check the signature, but wants to see one.
func pingDynamoDB(ctx context.Context, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint, strings.NewReader("{}"))
	if err != nil {
		return err
	}
	req.Close = true
	req.Header.Set("Content-Type", "application/x-amz-json-1.0")
	req.Header.Set("X-Amz-Target", "DynamoDB_20120810.ListTables")
	req.Header.Set("X-Amz-Date", "20250101T000000Z")
	req.Header.Set("Authorization", "AWS4-HMAC-SHA256 Credential=local/20250101/local/dynamodb/aws4_request, "+
		"SignedHeaders=host;x-amz-date, Signature=00")
	transport := &http.Transport{Proxy: nil} // a proxy could not reach this machine's loopback
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return err
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
	_ = resp.Body.Close()
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, body)
	}
	return nil
}
