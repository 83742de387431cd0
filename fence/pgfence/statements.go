package pgfence

import (
	"embed"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/tilefence/tilefence/fence"
)

//go:embed sql/*.sql
var sqlFiles embed.FS

// tablePattern admits names that need no quotes and mean the same with them. PostgreSQL cuts off what is
// longer than 63 bytes; the name of a table of tiles is shorter by floorSuffix.
var tablePattern = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,56}$`)

// Suffixes that make the names of the tables of floor and world from that of the table of tiles.
const (
	floorSuffix = "_floor"
	worldSuffix = "_world"
)

// tableName is a table with its schema, if one was given.
type tableName struct {
	schema string
	name   string
}

func parseTable(s string) (tableName, error) {
	if !tablePattern.MatchString(s) {
		return tableName{}, &fence.ArgumentError{Field: "table", Value: s,
			Want: "lower-case letters, digits and underscores, such as tilefence_tiles or game.tiles"}
	}
	if schema, name, found := strings.Cut(s, "."); found {
		return tableName{schema, name}, nil
	}
	return tableName{name: s}, nil
}

// sibling is another table in the same schema.
func (t tableName) sibling(name string) tableName { return tableName{t.schema, name} }

// quoted is the name as it stands in SQL.
func (t tableName) quoted() string {
	if t.schema == "" {
		return pgx.Identifier{t.name}.Sanitize()
	}
	return pgx.Identifier{t.schema, t.name}.Sanitize()
}

// String is the name as it was configured.
func (t tableName) String() string {
	if t.schema == "" {
		return t.name
	}
	return t.schema + "." + t.name
}

// statements are the files in sql, with the tables' names in place.
type statements struct {
	claimNew, raise, claimReleased, promote, release, read string
	list, retirable, raiseFloor, retire, world             string
	horizon, added                                         string

	// For many tiles in one transaction.
	settings, claimNewSet, raiseSet, claimReleasedSet, promoteSet, releaseSet, readSet, lockedSet string
}

func loadStatements(table tableName) statements {
	load := func(name string) string {
		b, err := sqlFiles.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // the files are part of the program
		}
		return bind(string(b), table)
	}
	return statements{
		claimNew:      load("claim_new"),
		raise:         load("raise"),
		claimReleased: load("claim_released"),
		promote:       load("promote"),
		release:       load("release"),
		read:          load("read"),
		list:          load("list"),
		horizon:       load("horizon"),
		added:         load("added"),
		retirable:     load("retirable"),
		raiseFloor:    load("raise_floor"),
		retire:        load("retire"),
		world:         load("world"),

		settings:         load("settings"),
		claimNewSet:      load("claim_new_set"),
		raiseSet:         load("raise_set"),
		claimReleasedSet: load("claim_released_set"),
		promoteSet:       load("promote_set"),
		releaseSet:       load("release_set"),
		readSet:          load("read_set"),
		lockedSet:        load("locked_set"),
	}
}

// bind puts the tables' names into SQL text and drops the comments, which the server need not parse.
func bind(sql string, table tableName) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	names := strings.NewReplacer("{table}", table.quoted(), "{floor}", table.sibling(table.name+floorSuffix).quoted(),
		"{world}", table.sibling(table.name+worldSuffix).quoted())
	return strings.TrimSpace(names.Replace(strings.Join(lines, "")))
}
