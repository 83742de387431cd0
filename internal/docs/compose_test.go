package docs

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// TestComposeFile: deploy/compose.yaml has the form of a compose file as far as it uses one, pins its images, opens
// ports to this machine alone, and keeps what a store of commits must keep. The addresses in its comment are its ports.
func TestComposeFile(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "deploy", "compose.yaml"))
	require.NoError(t, err)
	var file struct {
		Name     string
		Services map[string]struct {
			Image       string
			Command     []string
			Environment map[string]string
			Ports       []string
			Volumes     []string
			Healthcheck struct {
				Test     []string
				Interval string
				Retries  int
			}
		}
		Volumes map[string]struct{}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	require.NoError(t, decoder.Decode(&file))
	open := map[string]bool{}
	for name, s := range file.Services {
		assert.Regexp(t, `^[a-z/-]+:\d+(\.\d+)*$`, s.Image, "%s: a version", name)
		require.NotEmpty(t, s.Ports, name)
		for _, port := range s.Ports {
			here, _, ok := strings.Cut(strings.TrimPrefix(port, "127.0.0.1:"), ":")
			require.True(t, ok && strings.HasPrefix(port, "127.0.0.1:"), "%s: %s", name, port)
			open[net.JoinHostPort("127.0.0.1", here)] = true
		}
		for _, v := range s.Volumes {
			volume, _, _ := strings.Cut(v, ":")
			assert.Contains(t, file.Volumes, volume, name)
		}
	}
	redis := file.Services["redis"].Command
	for setting, want := range map[string]string{"--maxmemory-policy": "noeviction", "--appendonly": "yes"} {
		at := slices.Index(redis, setting)
		require.GreaterOrEqual(t, at, 0, setting)
		assert.Equal(t, want, redis[at+1])
	}
	comment, _, _ := strings.Cut(string(text), "\nname:")
	named := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindAllString(comment, -1)
	require.Len(t, named, 3)
	for _, address := range named {
		assert.True(t, open[address], "%s is nobody's port", address)
	}
}
