// Package repository checks the files of the repository themselves: what may be committed, and how wide a line
// may be. It has nothing but tests; selftest_test.go shows that each rule can be broken.
package repository

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const root = "../.."

// maxFileSize leaves room for a screenshot. A larger file is a build product or a data set.
const maxFileSize = 1 << 20

// executables are the first bytes of programs: ELF, Mach-O (32 and 64 bit, both byte orders, universal) and
// PE. Scripts are text and are not among them.
var executables = map[string]string{
	"\x7fELF":          "ELF",
	"\xfe\xed\xfa\xce": "Mach-O",
	"\xfe\xed\xfa\xcf": "Mach-O",
	"\xce\xfa\xed\xfe": "Mach-O",
	"\xcf\xfa\xed\xfe": "Mach-O",
	"\xca\xfe\xba\xbe": "Mach-O",
	"MZ":               "PE",
}

// TestNoBuildProductIsCommitted refuses programs and files above 1 MiB.
func TestNoBuildProductIsCommitted(t *testing.T) {
	for _, path := range trackedFiles(t) {
		content, err := readFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if violation := checkContent(content); violation != "" {
			t.Errorf("%s: %s", path, violation)
		}
	}
}

func checkContent(content []byte) string {
	if len(content) > maxFileSize {
		return fmt.Sprintf("%d bytes, and %d are allowed: do not commit build products or data sets",
			len(content), maxFileSize)
	}
	for magic, format := range executables {
		if bytes.HasPrefix(content, []byte(magic)) {
			return fmt.Sprintf("an executable image (%s): do not commit what go build writes", format)
		}
	}
	return ""
}

// trackedFiles lists what is committed or staged, by slash-separated paths below root. Outside a checkout, as in
// a downloaded module, every file counts.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	if _, err := os.Stat(filepath.Join(root, ".git")); err == nil {
		// safe.directory: a checkout may belong to another user than the one that runs the tests.
		git := exec.Command("git", "-c", "safe.directory=*", "ls-files", "-z")
		git.Dir = root
		out, err := git.Output()
		if err != nil {
			t.Fatalf("git ls-files: %v", err)
		}
		files = strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
	} else {
		files = allFiles(t)
	}
	files = slices.DeleteFunc(files, func(path string) bool {
		info, err := os.Lstat(filepath.Join(root, path))
		return errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular()
	})
	if len(files) < 100 {
		t.Fatalf("only %d files: the list is not that of the repository", len(files))
	}
	return files
}

func allFiles(t *testing.T) []string {
	t.Helper()
	var files []string
	err := fs.WalkDir(os.DirFS(root), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readFile(path string) ([]byte, error) {
	return os.ReadFile(filepath.Join(root, filepath.FromSlash(path)))
}
