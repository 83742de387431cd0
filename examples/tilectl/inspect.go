package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/tilefence/tilefence"
)

// inspector is the inspector of the running server that -inspector names.
func (t *tool) inspector() (*tilefence.InspectorClient, error) {
	if t.options.inspector == "" {
		return nil, errors.New("name the inspector of a server with -inspector or $TILEFENCE_INSPECTOR")
	}
	c := &tilefence.InspectorClient{URL: t.options.inspector}
	if token := os.Getenv("TILEFENCE_INSPECTOR_TOKEN"); token != "" {
		c.Header = http.Header{"Authorization": {"Bearer " + token}}
	}
	return c, nil
}

// inspect lists the tiles of a running server, and says on standard error what is wrong with it.
func inspect(ctx context.Context, t *tool, args []string) error {
	c, err := t.inspector()
	if err != nil {
		return err
	}
	seen, err := c.Tiles(ctx)
	if err != nil {
		return err
	}
	if wanted := tilesOf(args); len(wanted) > 0 {
		seen.Tiles = slices.DeleteFunc(seen.Tiles, func(s tilefence.InspectedTile) bool {
			return !slices.Contains(wanted, s.Tile)
		})
	}
	for _, p := range seen.Problems {
		fmt.Fprintln(t.errs, p)
	}
	return printTable(t, "TILE STATE OWNER EPOCH SEQ TICK QUEUED MISSED DURABILITY BEHIND", seen.Tiles,
		func(s *tilefence.InspectedTile) []any {
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
func behind(s *tilefence.InspectedTile) string {
	var all []string
	for _, m := range s.Marks {
		all = append(all, fmt.Sprintf("%s:%d", m.Consumer, m.Behind))
	}
	return cmp.Or(s.Problem, strings.Join(all, ","))
}

func inspectState(ctx context.Context, t *tool, args []string) error {
	c, err := t.inspector()
	if err != nil {
		return err
	}
	state, err := c.State(ctx, tilesOf(args)[0])
	if err == nil {
		fmt.Fprintf(t.out, "%s\n", state)
	}
	return err
}

func inspectTakeOver(ctx context.Context, t *tool, args []string) error {
	c, err := t.inspector()
	if err != nil {
		return err
	}
	return c.TakeOver(ctx, tilesOf(args)[0])
}

// inspectDrain hands a tile to the contact that follows it on the command line, if there is one.
func inspectDrain(ctx context.Context, t *tool, args []string) error {
	c, err := t.inspector()
	if err != nil {
		return err
	}
	return c.Drain(ctx, tilesOf(args[:1])[0], strings.Join(args[1:], ""))
}
