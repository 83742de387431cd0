package socket

import (
	"errors"
	"net/url"
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

// DialError is the error of a handshake without the URLs in it. Package net/http puts the URL into its errors, with its
// query.
func DialError(err error) error {
	for {
		u, ok := errors.AsType[*url.Error](err)
		switch {
		case !ok:
			return err
		case u.Op == "parse":
			return errors.New("the URL cannot be parsed")
		}
		err = u.Err
	}
}
