package layering

import (
	"errors"
	"fmt"
	"go/ast"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// readModule reads the imports of all packages of the module at root. It builds nothing and ignores which
// system a file is for, so a file that is for another system is held to the same rules.
func readModule(root string) (house, error) {
	module, err := modulePath(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	h := make(house)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if path != root && notOfModule(path, entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		dir, err := filepath.Rel(root, filepath.Dir(path))
		if err != nil {
			return err
		}
		return h.addFile(filepath.ToSlash(dir), path, module)
	})
	if err == nil && len(h) == 0 {
		err = fmt.Errorf("no Go files below %s", root)
	}
	return h, err
}

// notOfModule reports whether the go command, too, would leave a directory out.
func notOfModule(path, name string) bool {
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" {
		return true
	}
	_, err := os.Stat(filepath.Join(path, "go.mod"))
	return err == nil
}

func modulePath(goMod string) (string, error) {
	text, err := os.ReadFile(goMod)
	if err != nil {
		return "", err
	}
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(line, "module "); ok {
			return strings.TrimSpace(path), nil
		}
	}
	return "", errors.New(goMod + " names no module")
}

func (h house) addFile(dir, path, module string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly|parser.ParseComments)
	if err != nil {
		return err
	}
	if neverBuilt(file) {
		return nil
	}
	p := h[dir]
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", path, spec.Path.Value, err)
		}
		switch inside, ok := strings.CutPrefix(imported, module+"/"); {
		case ok:
			p.inside = add(p.inside, inside)
		case imported == module:
			p.inside = add(p.inside, ".")
		default:
			p.outside = add(p.outside, imported)
		}
	}
	h[dir] = p
	return nil
}

// neverBuilt reports whether a file is a program of its own, marked with "//go:build ignore".
func neverBuilt(file *ast.File) bool {
	for _, group := range file.Comments {
		for _, comment := range group.List {
			if comment.Pos() > file.Package || !constraint.IsGoBuild(comment.Text) {
				continue
			}
			expr, err := constraint.Parse(comment.Text)
			if tag, ok := expr.(*constraint.TagExpr); err == nil && ok && tag.Tag == "ignore" {
				return true
			}
		}
	}
	return false
}

func add(sorted []string, value string) []string {
	at, found := slices.BinarySearch(sorted, value)
	if found {
		return sorted
	}
	return slices.Insert(sorted, at, value)
}
