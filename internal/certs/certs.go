// Package certs makes certificates for tests and for a deployment on one machine: an authority that lives in memory and
// certificates of the loopback addresses, all valid for a week. A production deployment has its own.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const life = 7 * 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	// PEM is the authority's own certificate, for those that shall trust it.
	PEM []byte

	certificate *x509.Certificate // this and its key only of one that New has made
	key         *ecdsa.PrivateKey
	leaf        tls.Certificate
	pool        *x509.CertPool
}

// New makes an authority, and a certificate of localhost, 127.0.0.1 and ::1.
func New() (*Authority, error) {
	a := &Authority{pool: x509.NewCertPool()}
	template := &x509.Certificate{Subject: pkix.Name{CommonName: "authority for this machine"},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := sign(template, template, a.key, a.key)
	if err != nil {
		return nil, err
	}
	if a.certificate, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pool.AddCert(a.certificate)
	a.PEM = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err = sign(&x509.Certificate{Subject: pkix.Name{CommonName: "localhost"},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}},
		a.certificate, key, a.key)
	a.leaf = tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return a, err
}

// sign makes the certificate of key.
func sign(template, parent *x509.Certificate, key, by *ecdsa.PrivateKey) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore, template.NotAfter = time.Now().Add(-time.Hour), time.Now().Add(life)
	return x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, by)
}

// Server is what a server presents to its clients.
func (a *Authority) Server() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.leaf}, MinVersion: tls.VersionTLS13}
}

// Client trusts the authority's servers, and presents nothing.
func (a *Authority) Client() *tls.Config {
	return &tls.Config{RootCAs: a.pool, MinVersion: tls.VersionTLS13}
}

// Mutual is for both ends of connections between processes that all have certificates of the authority.
func (a *Authority) Mutual() *tls.Config {
	return &tls.Config{Certificates: []tls.Certificate{a.leaf}, RootCAs: a.pool, ClientCAs: a.pool,
		ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13}
}

// Files are the names of files with certificates.
type Files struct {
	Certificate, Key string // of localhost, 127.0.0.1 and ::1
	Authority        string
}

// in are the files of a directory.
func in(dir string) Files {
	return Files{Certificate: filepath.Join(dir, "certificate.pem"), Key: filepath.Join(dir, "key.pem"),
		Authority: filepath.Join(dir, "authority.pem")}
}

// Read reads what Write has written, or others have under the same names. What it returns has an authority's
// certificate and not its key.
func Read(dir string) (*Authority, error) {
	f := in(dir)
	a := &Authority{pool: x509.NewCertPool()}
	var err error
	if a.leaf, err = tls.LoadX509KeyPair(f.Certificate, f.Key); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	if a.PEM, err = os.ReadFile(f.Authority); err != nil {
		return nil, fmt.Errorf("certificates: %w", err)
	}
	if !a.pool.AppendCertsFromPEM(a.PEM) {
		return nil, fmt.Errorf("certificates: %s has no certificate", f.Authority)
	}
	return a, nil
}

// Write writes the certificates into a directory, for programs of their own. Only the owner of the files may read them.
func (a *Authority) Write(dir string) (Files, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.leaf.PrivateKey)
	if err != nil {
		return Files{}, err
	}
	f := in(dir)
	for name, content := range map[string][]byte{
		f.Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.leaf.Certificate[0]}),
		f.Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		f.Authority:   a.PEM,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			return Files{}, err
		}
	}
	return f, nil
}
