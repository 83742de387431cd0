package redisfence

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tilefence/tilefence/fence"
)

// ParseOptions returns the Options of servers that are named in one text, as programs take it from a flag or an
// environment variable: host:port, several separated by commas, or a URL:
//
//	rediss://user:password@host:port,host:port?ca=/etc/tls/ca.pem&cert=/etc/tls/client.pem&key=/etc/tls/client-key.pem
//
// With rediss, connections use TLS 1.2 or later, and each server must present a certificate of its host. The authority
// is one that the machine trusts, or that of the PEM file ca. cert and key name PEM files of the certificate that the
// client presents; by default it presents none. A redis URL is without TLS, and has none of these. User and password
// may be left out; what a URL reserves is escaped in them.
//
// Errors: a *fence.ArgumentError, which does not show user and password, or an error of a file that cannot be read.
func ParseOptions(servers string) (*redis.ClusterOptions, error) {
	scheme, rest, isURL := strings.Cut(servers, "://")
	if !isURL {
		o := Options(strings.FieldsFunc(servers, func(r rune) bool { return r == ',' })...)
		return o, CheckAddresses(o.Addrs)
	}
	// A URL has one host, so that net/url is given a name in the place of the list.
	end := strings.IndexAny(rest+"/", "/?#")
	hosts := rest[strings.LastIndex(rest[:end], "@")+1 : end]
	u, err := url.Parse(scheme + "://" + rest[:end-len(hosts)] + "servers" + rest[end:])
	refused := func(want string) error {
		return &fence.ArgumentError{Field: "URL", Value: scheme + "://…", Want: want}
	}
	if err != nil || (scheme != "redis" && scheme != "rediss") || strings.Trim(u.Path, "/") != "" || u.Fragment != "" {
		return nil, refused("redis://user:password@host:port,… or rediss://…, with what is reserved escaped")
	}
	o := Options(strings.Split(hosts, ",")...)
	if err := CheckAddresses(o.Addrs); err != nil {
		return nil, err
	}
	o.Username = u.User.Username()
	o.Password, _ = u.User.Password()
	files := u.Query()
	for name := range files {
		if scheme == "redis" || !slices.Contains([]string{"ca", "cert", "key"}, name) {
			return nil, refused("the parameters ca, cert and key, which are files, with rediss alone; not " + name)
		}
	}
	if scheme == "rediss" {
		o.TLSConfig, err = clientTLS(files.Get("ca"), files.Get("cert"), files.Get("key"))
	}
	return o, err
}

// clientTLS is what a client connects with: the authority that it trusts, and what it presents, of PEM files.
func clientTLS(ca, cert, key string) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		text, err := os.ReadFile(ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, &fence.ArgumentError{Field: "ca", Value: ca, Want: "a PEM file with a certificate"}
		}
	}
	if cert == "" && key == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("cert and key, which go together: %w", err)
	}
	c.Certificates = []tls.Certificate{pair}
	return c, nil
}
