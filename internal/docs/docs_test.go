package docs

import (
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// publicPackages lists the directories of packages that a game server can import.
func publicPackages(t *testing.T) []string {
	var dirs []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.IsDir() {
			return err
		}
		name := d.Name()
		if path != root && (strings.HasPrefix(name, ".") || name == "internal" || name == "testdata" ||
			name == "examples" || name == "clients" || name == "deploy") {
			return filepath.SkipDir
		}
		if goFiles, _ := filepath.Glob(filepath.Join(path, "*.go")); len(goFiles) > 0 && path != root {
			dirs = append(dirs, path)
		}
		return nil
	})
	require.NoError(t, err)
	require.Greater(t, len(dirs), 20)
	return dirs
}

func parsePackage(t *testing.T, dir string) (files, tests []*ast.File) {
	set := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, name := range names {
		f, err := parser.ParseFile(set, name, nil, parser.ParseComments)
		require.NoError(t, err)
		if strings.HasSuffix(name, "_test.go") {
			tests = append(tests, f)
		} else {
			files = append(files, f)
		}
	}
	return files, tests
}

// TestEveryPublicPackageIsExplained wants one package comment of some length, and an example that is run.
// Generated code and the conformance suites, which are themselves tests, need no example.
func TestEveryPublicPackageIsExplained(t *testing.T) {
	for _, dir := range publicPackages(t) {
		files, tests := parsePackage(t, dir)
		comments, generated := 0, false
		for _, f := range files {
			if f.Doc != nil {
				comments++
				assert.Greater(t, len(strings.Fields(f.Doc.Text())), 30, "%s: the package comment says too little", dir)
			}
			generated = generated || ast.IsGenerated(f)
		}
		if !generated {
			assert.Equal(t, 1, comments, "%s: one file has the package comment", dir)
		}
		suite := strings.HasSuffix(dir, "test")
		if generated || suite {
			continue
		}
		examples := doc.Examples(tests...)
		assert.NotEmpty(t, examples, "%s: no Example", dir)
		for _, e := range examples {
			if !needsServer[filepath.Base(dir)] {
				assert.True(t, e.Output != "" || e.EmptyOutput, "%s: Example%s is not run: it has no Output", dir,
					e.Name)
			}
		}
	}
}

// needsServer are the back ends that only exist with a server; their examples are compiled, not run.
var needsServer = map[string]bool{"redisfence": true, "redisstream": true, "redisfanout": true, "redisshare": true,
	"redismatch": true, "redisviewcache": true, "redisplan": true, "redisdirectory": true,
	"natsfanout": true, "pgfence": true, "dynamoledger": true, "dynamocheckpoint": true}

// TestLinksLeadSomewhere follows the relative links of the Markdown files.
func TestLinksLeadSomewhere(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	checked := 0
	for _, page := range markdownFiles(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			_, err := os.Stat(filepath.Join(filepath.Dir(page), m[1]))
			assert.NoError(t, err, "%s", page)
			checked++
		}
	}
	require.Positive(t, checked)
}
