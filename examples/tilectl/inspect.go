package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/tilefence/tilefence/inspect"
)

// openInspector makes a client of the running server that -inspector names.
func (t *tool) openInspector(context.Context) error {
	if t.options.inspector == "" {
		return &usageError{"-inspector is missing, or $TILEFENCE_INSPECTOR: the inspector of a running server"}
	}
	t.inspector = &inspect.Client{URL: t.options.inspector}
	if token := os.Getenv("TILEFENCE_INSPECTOR_TOKEN"); token != "" {
		t.inspector.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	return nil
}

// inspectTiles lists the tiles of a running server, and says on standard error what is wrong with it.
func inspectTiles(ctx context.Context, t *tool, args []string) error {
	seen, err := t.inspector.Tiles(ctx)
	if err != nil {
		return err
	}
	if wanted := tilesOf(args); len(wanted) > 0 {
		seen.Tiles = slices.DeleteFunc(seen.Tiles, func(s inspect.Tile) bool {
			return !slices.Contains(wanted, s.Tile)
		})
	}
	for _, p := range seen.Problems {
		t.errs.printf("%s\n", p)
	}
	return printTable(t, "TILE STATE OWNER EPOCH SEQ TICK QUEUED MISSED DURABILITY BEHIND", seen.Tiles,
		func(s *inspect.Tile) []any {
			state := s.State
			switch {
			case s.Frozen:
				state = "frozen"
			case s.Dilation > 1:
				state += fmt.Sprintf(",×%g", s.Dilation)
			}
			return []any{s.Tile, state, s.Owner, s.Epoch, s.Seq, s.Tick, s.Queued, s.Missed, s.Class, behind(s)}
		})
}

// behind is how many batches each consumer of a tile lacks.
func behind(s *inspect.Tile) string {
	var all []string
	for _, m := range s.Marks {
		all = append(all, fmt.Sprintf("%s:%d", m.Consumer, m.Behind))
	}
	return cmp.Or(s.Problem, strings.Join(all, ","))
}

func inspectState(ctx context.Context, t *tool, args []string) error {
	state, err := t.inspector.State(ctx, tilesOf(args)[0])
	if err == nil {
		err = json.NewEncoder(t.out.stream()).Encode(state) // what is no JSON, or has lines, does not come through
	}
	return err
}

func inspectTakeOver(ctx context.Context, t *tool, args []string) error {
	return t.inspector.TakeOver(ctx, tilesOf(args)[0])
}

// inspectDrain hands a tile to the contact that follows it on the command line, if there is one.
func inspectDrain(ctx context.Context, t *tool, args []string) error {
	return t.inspector.Drain(ctx, tilesOf(args[:1])[0], strings.Join(args[1:], ""))
}
