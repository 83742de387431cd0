package socket

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"unicode"
)

// Redact is a URL without what may be a secret, for errors and logs: no user and password, no query, no fragment. One
// that cannot be parsed is not shown.
func Redact(raw string) string {
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return "(not a URL)"
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}
	if u.RawQuery != "" {
		return shown.String() + "?…"
	}
	return shown.String()
}

// DialError is the error of a handshake without the URLs in it, with the reason that the response gives, if there is
// one. Package net/http puts the URL into its errors, with its query.
func DialError(err error, resp *http.Response) error {
	for {
		u, ok := errors.AsType[*url.Error](err)
		switch {
		case !ok:
			if why := reason(resp); why != "" {
				return fmt.Errorf("%w: %s", err, why)
			}
			return err
		case u.Op == "parse":
			return errors.New("the URL cannot be parsed")
		}
		err = u.Err
	}
}

// reason is the first line of a text with which a server refuses a handshake; empty if there is none that can be shown.
func reason(resp *http.Response) string {
	if resp == nil || resp.StatusCode < 400 || !strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return ""
	}
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // as far as it has come
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return -1
	}, line)
}
