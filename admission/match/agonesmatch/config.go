package agonesmatch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tilefence/tilefence/admission/match"
	"github.com/tilefence/tilefence/internal/setting"
)

// Config holds the optional settings of an Allocator. Nil and the zero value are valid in a pod.
type Config struct {
	// Server is the URL of the API server, such as https://10.0.0.1:6443. Default: that of the pod's cluster.
	Server string
	// Namespace of the game servers. Default: the pod's.
	Namespace string
	// Client sends the requests. Default: one that trusts the authority of the pod's cluster alone.
	Client *http.Client
	// Token is called for each request, and authenticates it. Default: the token of the pod's service account, which
	// Kubernetes replaces. A Server with client certificates may need none: return "".
	Token func() (string, error)
	// Hold is for how long a player may come. It must be what the game server waits for its players. Default 30 s.
	Hold time.Duration
	// Timeout of a request. Default 10 s.
	Timeout time.Duration
}

// maxAnswer bounds an answer, in bytes. Annotations, the largest part, have 256 KiB in Kubernetes.
const maxAnswer = 1 << 20

// account is where a pod has its service account.
var account = "/var/run/secrets/kubernetes.io/serviceaccount"

// namespaceForm is a label of DNS, as Kubernetes wants.
var namespaceForm = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

func (c *Config) withDefaults() (Config, error) {
	d := setting.Of(c)
	var check setting.Check
	check.From(time.Millisecond, "Hold", &d.Hold, 30*time.Second)
	check.Refuse(d.Hold > match.MaxHold, "Hold", d.Hold, "at most 30m")
	check.From(time.Millisecond, "Timeout", &d.Timeout, 10*time.Second)
	if check.Err != nil {
		return d, check.Err
	}
	if err := d.inPod(); err != nil {
		return d, err
	}
	at, err := url.Parse(d.Server)
	check.Refuse(err != nil || at.Host == "" || at.Scheme != "https" && at.Scheme != "http", "Server", d.Server,
		"https://host:port; empty in a pod, whose service account must be mounted")
	check.Refuse(!namespaceForm.MatchString(d.Namespace), "Namespace", d.Namespace, "that of the game servers")
	d.Server = strings.TrimSuffix(d.Server, "/")
	return d, check.Err
}

// inPod gives what is not set the values of the pod. The token is never sent to another server than the pod's own.
func (c *Config) inPod() error {
	if c.Namespace == "" {
		text, err := os.ReadFile(filepath.Join(account, "namespace"))
		if err != nil {
			return fmt.Errorf("agones: Config.Namespace is not set, and this is no pod: %w", err)
		}
		c.Namespace = strings.TrimSpace(string(text))
	}
	if c.Server != "" {
		if c.Client == nil {
			c.Client = http.DefaultClient
		}
		if c.Token == nil {
			c.Token = func() (string, error) { return "", nil }
		}
		return nil
	}
	if host, port := os.Getenv("KUBERNETES_SERVICE_HOST"), os.Getenv("KUBERNETES_SERVICE_PORT"); host != "" {
		c.Server = "https://" + net.JoinHostPort(host, port)
	}
	if c.Token == nil {
		c.Token = func() (string, error) {
			text, err := os.ReadFile(filepath.Join(account, "token"))
			return strings.TrimSpace(string(text)), err
		}
	}
	if c.Client != nil {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(account, "ca.crt"))
	if err != nil {
		return fmt.Errorf("agones: Config.Server is not set, and this is no pod: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		return fmt.Errorf("agones: %s/ca.crt has no certificate", account)
	}
	c.Client = &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted},
		ForceAttemptHTTP2: true, MaxIdleConnsPerHost: atOnce, IdleConnTimeout: time.Minute}}
	return nil
}

// do sends a request and reads the whole answer.
func (c *Config) do(ctx context.Context, what, method, path string, body []byte) (code int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	fail := func(err error) (int, []byte, error) { return 0, nil, fmt.Errorf("agones: %s: %w", what, err) }
	r, err := http.NewRequestWithContext(ctx, method, c.Server+path, bytes.NewReader(body))
	if err != nil {
		return fail(err)
	}
	token, err := c.Token()
	if err != nil {
		return fail(err)
	}
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Content-Type", "application/json")
	response, err := c.Client.Do(r)
	if err != nil {
		return fail(err)
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(io.LimitReader(response.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fail(err)
	case len(answer) > maxAnswer:
		return fail(fmt.Errorf("%w: it is longer than %d bytes", ErrAnswer, maxAnswer))
	}
	return response.StatusCode, answer, nil
}

func success(code int) bool { return code >= 200 && code < 300 }
