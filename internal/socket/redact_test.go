package socket_test

import (
	"errors"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/tilefence/tilefence/internal/socket"
)

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"wss://play.example.com/play":                       "wss://play.example.com/play",
		"wss://ann:secret@play.example.com/play?t=secret#s": "wss://play.example.com/play?…",
		"://secret":        "(not a URL)",
		"wss://h:\x7f/":    "(not a URL)",
		"mailto:secret":    "(not a URL)",
		"wss://h/#secret":  "wss://h/",
		"wss://secret@h/x": "wss://h/x",
	} {
		assert.Equal(t, want, socket.Redact(raw), raw)
	}
}

func TestDialErrorKeepsTheCause(t *testing.T) {
	cause := errors.New("connection refused")
	err := fmt.Errorf("dial: %w", &url.Error{Op: "Get", URL: "https://h/?t=secret", Err: cause})
	assert.ErrorIs(t, socket.DialError(err, nil), cause)
	assert.NotContains(t, socket.DialError(err, nil).Error(), "secret")
	assert.Equal(t, cause, socket.DialError(cause, nil))
}
