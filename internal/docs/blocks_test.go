package docs

import (
	"errors"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A block is a piece of Go in a doc comment or in Markdown.
type block struct {
	where string // file:line of the comment, or the Markdown file
	dir   string // directory of the package, for what it may leave out
	text  string
}

// looksLikeGo matches an assignment, a declaration of a function, or a call of something in a package.
var looksLikeGo = regexp.MustCompile(`:=|(?m)^\s*func |\b[a-z]\w*\.[A-Z]\w*\(`)

// TestGoBlocksCompile type-checks every block of Go in the doc comments and in the Markdown files. A block is a
// program, a list of declarations, or statements. Packages need no import, and given_test.go declares what statements
// may use without declaring it. A block that is not meant to compile must not look like Go.
func TestGoBlocksCompile(t *testing.T) {
	blocks := append(commentBlocks(t), markdownBlocks(t)...)
	require.Greater(t, len(blocks), 20)
	checker := newChecker(t, blocks)
	for _, b := range blocks {
		if err := errors.Join(checker.check(b)...); err != nil {
			t.Errorf("%s: this block does not compile:\n%v\n\n%s", b.where, err, b.text)
		}
	}
	for name := range given {
		assert.True(t, checker.used[name], "given_test.go: no block uses %s", name)
	}
}

// commentBlocks finds the indented blocks of Go in the doc comments of every package.
func commentBlocks(t *testing.T) (blocks []block) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != root || d.Name() == "testdata"):
			return filepath.SkipDir
		case filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		set := token.NewFileSet()
		f, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil || ast.IsGenerated(f) {
			return err
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if doc := docOf(n); doc != nil {
				for _, text := range codeIn(doc.Text()) {
					blocks = append(blocks, block{set.Position(doc.Pos()).String(), filepath.Dir(path), text})
				}
			}
			return true
		})
		return nil
	})
	require.NoError(t, err)
	return blocks
}

func docOf(n ast.Node) *ast.CommentGroup {
	switch n := n.(type) {
	case *ast.File:
		return n.Doc
	case *ast.GenDecl:
		return n.Doc
	case *ast.FuncDecl:
		return n.Doc
	case *ast.TypeSpec:
		return n.Doc
	case *ast.ValueSpec:
		return n.Doc
	case *ast.Field:
		return n.Doc
	}
	return nil
}

func codeIn(doc string) (blocks []string) {
	var p comment.Parser
	for _, part := range p.Parse(doc).Content {
		if code, ok := part.(*comment.Code); ok && isGo(code.Text) {
			blocks = append(blocks, code.Text)
		}
	}
	return blocks
}

func isGo(text string) bool {
	_, err := parse(text, "", token.NewFileSet())
	return err == nil || looksLikeGo.MatchString(text)
}

// markdownBlocks finds the fenced blocks of Go in the Markdown files.
func markdownBlocks(t *testing.T) (blocks []block) {
	fenced := regexp.MustCompile("(?s)(?:^|\n)```go\n(.*?)\n```")
	for _, page := range markdownFiles(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for _, m := range fenced.FindAllStringSubmatch(string(text), -1) {
			blocks = append(blocks, block{page, root, m[1]})
		}
	}
	return blocks
}

func markdownFiles(t *testing.T) []string {
	var pages []string
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "deploy/*/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	return pages
}

// parse reads a block as a program, as declarations or as statements, which get the declarations given as prefix.
func parse(text, prefix string, set *token.FileSet) (*ast.File, error) {
	if strings.HasPrefix(text, "package ") || strings.Contains(text, "\npackage ") {
		return parser.ParseFile(set, "block", text, 0)
	}
	declarations, err := parser.ParseFile(set, "block", "package block; "+prefix+"\n"+text, 0)
	if err == nil {
		return declarations, nil
	}
	inFunction := "package block; " + prefix + "\nfunc _() error {\n" + text + "\nreturn nil\n}"
	statements, err2 := parser.ParseFile(set, "block", inFunction, 0)
	if err2 == nil || !regexp.MustCompile(`(?m)^(func|type) `).MatchString(text) {
		return statements, err2
	}
	return nil, err
}

type checker struct {
	packages map[string][]string // import paths by package name
	exports  map[string]string   // files of export data, by import path
	used     map[string]bool     // names of given
}

// newChecker finds the packages that blocks may use: those of the module, and those of given_test.go.
func newChecker(t *testing.T, blocks []block) *checker {
	c := &checker{packages: make(map[string][]string), exports: make(map[string]string), used: make(map[string]bool)}
	for _, line := range goList(t, "-f", "{{.Name}} {{.ImportPath}}", "./...") {
		name, path, _ := strings.Cut(line, " ")
		c.packages[name] = append(c.packages[name], path)
	}
	for _, path := range outside {
		name := packageName(path)
		c.packages[name] = append(c.packages[name], path)
	}
	needed := make(map[string]bool)
	for _, b := range blocks {
		// A block that cannot be parsed is reported by check.
		if f, _, err := c.complete(b, token.NewFileSet()); err == nil {
			for _, spec := range f.Imports {
				needed[strings.Trim(spec.Path.Value, `"`)] = true
			}
		}
	}
	args := []string{"-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}
	args = append(args, slices.Sorted(maps.Keys(needed))...)
	for _, line := range goList(t, args...) {
		path, file, _ := strings.Cut(line, " ")
		c.exports[path] = file
	}
	return c
}

func goList(t *testing.T, args ...string) []string {
	list := exec.Command("go", append([]string{"list"}, args...)...)
	list.Dir = root
	out, err := list.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("go list: %v\n%s", err, exit.Stderr)
	}
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}

// packageName is the last element of an import path that is not a version.
func packageName(path string) string {
	elements := strings.Split(path, "/")
	last := elements[len(elements)-1]
	if len(elements) > 1 && regexp.MustCompile(`^v\d+$`).MatchString(last) {
		last = elements[len(elements)-2]
	}
	return strings.TrimPrefix(last, "go-")
}

// check returns what the compiler says about a block, apart from names that are declared and not used.
func (c *checker) check(b block) (problems []error) {
	set := token.NewFileSet()
	f, names, err := c.complete(b, set)
	if err != nil {
		return []error{err}
	}
	for _, name := range names {
		c.used[name] = true
	}
	lookup := func(path string) (io.ReadCloser, error) {
		if c.exports[path] == "" {
			return nil, fmt.Errorf("no export data for %s", path)
		}
		return os.Open(c.exports[path])
	}
	config := types.Config{
		Importer: importer.ForCompiler(set, "gc", lookup),
		Error: func(err error) {
			if e := (types.Error{}); !errors.As(err, &e) || !e.Soft {
				problems = append(problems, err)
			}
		},
	}
	_, _ = config.Check("block", set, []*ast.File{f}, nil) // problems has the error
	return problems
}

// complete parses a block with the imports and the given names that it needs, and returns the latter.
func (c *checker) complete(b block, set *token.FileSet) (f *ast.File, names []string, err error) {
	bare, err := parse(b.text, "", set)
	if err != nil || bare.Name.Name != "block" {
		return bare, nil, err
	}
	var declarations strings.Builder
	values := usedAsValue(bare)
	for _, name := range slices.Sorted(maps.Keys(unresolved(bare))) {
		kind := given[name]
		if special, ok := givenIn[packageOf(b.dir)][name]; ok {
			kind = special
		}
		if kind == "" || len(c.packages[name]) > 0 && !values[name] {
			continue
		}
		names = append(names, name)
		fmt.Fprintf(&declarations, "var %s %s; ", name, kind)
	}
	withGiven, err := parse(b.text, declarations.String(), set)
	if err != nil {
		return nil, nil, err
	}
	var imports strings.Builder
	for _, name := range slices.Sorted(maps.Keys(unresolved(withGiven))) {
		if path := c.find(name, b.dir); path != "" {
			fmt.Fprintf(&imports, "import %s %q; ", name, path)
		}
	}
	f, err = parse(b.text, imports.String()+declarations.String(), set)
	return f, names, err
}

// usedAsValue returns the names that occur elsewhere than before a dot: not packages, though packages may have these
// names.
func usedAsValue(f *ast.File) map[string]bool {
	values := make(map[string]bool)
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			_, plain := n.X.(*ast.Ident)
			return !plain
		case *ast.Ident:
			values[n.Name] = true
		}
		return true
	})
	return values
}

func unresolved(f *ast.File) map[string]bool {
	names := make(map[string]bool)
	for _, ident := range f.Unresolved {
		names[ident.Name] = true
	}
	return names
}

// find returns the import path that a block means by a package's name: that of its own package, if there are more.
func (c *checker) find(name, dir string) string {
	paths := c.packages[name]
	if len(paths) == 0 {
		return ""
	}
	own := slices.IndexFunc(paths, func(path string) bool {
		return strings.HasSuffix(path, "/"+packageOf(dir)) || strings.HasPrefix(path, packageOf(dir)+"/")
	})
	return paths[max(own, 0)]
}

// packageOf is the directory of a package, relative to that of the module.
func packageOf(dir string) string {
	rel, err := filepath.Rel(root, dir)
	if err != nil {
		return ""
	}
	return filepath.ToSlash(rel)
}

func TestGoBlocksAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		"x := f()":                              true,
		"func TestX(t *testing.T) {":            true,
		"err = store.Load(ctx) and so on":       true,
		"go mux.Handle(path, handler)":          true,
		"version  1 byte, 1":                    false,
		"go run ./examples/battle":              false,
		`{"id":"7","outcome":"applied"}`:        false,
		"players ──intents──▶ gateway ──▶ tile": false,
	} {
		assert.Equal(t, want, isGo(text), text)
	}
}

func TestWrongBlocksAreRefused(t *testing.T) {
	blocks := []block{
		{"statements", root, "key := fence.KeysOf(1)"},
		{"declarations", root, "func f(ctx context.Context) error { return ctx.Err() }"},
		{"program", root, "package main\n\nfunc main() {}"},
		{"wrong type", root, `key := fence.KeysOf("one")`},
		{"wrong name", root, "key := fence.NoSuchName(1)"},
		{"unknown name", root, "return nobodyDeclaresThis.Do()"},
		{"an ellipsis", root, "key := fence.KeysOf(…)"},
		{"a wrong program", root, "package main\n\nfunc main() { return 1 }"},
	}
	c := newChecker(t, blocks)
	for i, b := range blocks {
		if i < 3 {
			assert.Empty(t, c.check(b), b.where)
		} else {
			assert.NotEmpty(t, c.check(b), b.where)
		}
	}
}
