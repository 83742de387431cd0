package main

import (
	"bytes"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"
	"text/template"
)

// newgame is the game that new writes: every file is a template, and loses .tmpl at the end of its name.
//
//go:embed newgame
var newgame embed.FS

// lobbyFile is for games with a lobby alone.
const lobbyFile = "newgame/lobby.go.tmpl"

// gameName is what a game may be called: it becomes part of a module's path, and of the names of tables.
var gameName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,30}[a-z0-9]$`)

// game is what the templates know.
type game struct {
	Name    string
	Go      string // version of the language
	Version string // of this module; empty: the newest
	Replace string // directory of a clone of this repository; empty: none
	Lobby   bool   // players come by matches
}

const newUsage = `Usage: tilectl new [-lobby] [-replace dir] <name>

Writes a small game to the directory <name>: rules of two tiles with a door between them, tests, a page, and a server
with the settings of production. With -lobby players ask for a match first.

`

// newGame writes a game, and returns the exit status.
func newGame(args []string, out, errs io.Writer) int {
	g := game{Go: "1.26"}
	flags := flag.NewFlagSet("tilectl new", flag.ContinueOnError)
	flags.SetOutput(errs)
	flags.Usage = func() { _, _ = fmt.Fprint(errs, newUsage); flags.PrintDefaults() }
	flags.BoolVar(&g.Lobby, "lobby", false, "players ask for a match, and come with the seats that they get")
	flags.StringVar(&g.Replace, "replace", "", "take Tilefence from this `directory`, a clone of its repository")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return statusOK
	case err != nil || flags.NArg() != 1:
		flags.Usage()
		return statusUsage
	}
	g.Name = flags.Arg(0)
	if !gameName.MatchString(g.Name) {
		_, _ = fmt.Fprintf(errs, "tilectl new: a game cannot be called %q: want 2 to 32 of a-z, 0-9 and -, "+
			"the first a letter and the last no -\n", g.Name)
		return statusUsage
	}
	if info, ok := debug.ReadBuildInfo(); ok && strings.HasPrefix(info.Main.Version, "v") &&
		!strings.Contains(info.Main.Version, "+") { // built from a changed clone

		g.Version = info.Main.Version
	}
	if err := g.write(g.Name); err != nil {
		_, _ = fmt.Fprintln(errs, "tilectl new:", err)
		return statusFailed
	}
	_, _ = fmt.Fprintf(out, `%s is written. Now:

  cd %[1]s && go mod tidy
  go test ./...                       # the promises of every game, on yours
  go run . -memory                    # play at http://127.0.0.1:8080/
  go tool tilectl dev -- go run .     # the same on Redis, PostgreSQL and DynamoDB
`, g.Name)
	return statusOK
}

// write makes the directory, which must not be there, and writes every file. If it fails, nothing is left.
func (g *game) write(dir string) (err error) {
	if g.Replace != "" {
		if g.Replace, err = filepath.Abs(g.Replace); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err // *fs.PathError: it names the directory, and says that it exists
	}
	defer func() {
		if err != nil {
			_ = os.RemoveAll(dir)
		}
	}()
	return fs.WalkDir(newgame, "newgame", func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == "newgame" {
			return err
		}
		to := filepath.Join(dir, strings.TrimSuffix(strings.TrimPrefix(path, "newgame/"), ".tmpl"))
		if path == lobbyFile && !g.Lobby {
			return nil
		}
		if d.IsDir() {
			return os.Mkdir(to, 0o755)
		}
		return g.writeFile(path, to)
	})
}

func (g *game) writeFile(from, to string) error {
	text, err := newgame.ReadFile(from)
	if err != nil {
		return err
	}
	t, err := template.New(from).Parse(string(text))
	if err != nil {
		return err
	}
	var filled bytes.Buffer
	if err := t.Execute(&filled, g); err != nil {
		return err
	}
	return os.WriteFile(to, filled.Bytes(), 0o644)
}
