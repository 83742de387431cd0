package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEveryBugHasItsTest: the tests that docs/found-bugs.md and SECURITY.md name are there.
func TestEveryBugHasItsTest(t *testing.T) {
	known := map[string]bool{}
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	require.NoError(t, filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllSubmatch(text, -1) {
			known[string(m[1])] = true
		}
		return err
	}))
	for _, name := range []string{"/docs/found-bugs.md", "/SECURITY.md"} {
		page, err := os.ReadFile(root + name)
		require.NoError(t, err)
		named := regexp.MustCompile("`((?:Test|Fuzz)\\w+)`").FindAllSubmatch(page, -1)
		require.Greater(t, len(named), 30)
		for _, m := range named {
			assert.True(t, known[string(m[1])], "%s: %s is not there", name, m[1])
		}
	}
}
