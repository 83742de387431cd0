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

// tablePattern admits names that need no quotes and mean the same with them.
var tablePattern = regexp.MustCompile(`^([a-z_][a-z0-9_]{0,62}\.)?[a-z_][a-z0-9_]{0,62}$`)

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

// statements are the files in sql, with the table's name in place.
type statements struct {
	claimNew, claimReleased, promote, release, read string
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
		claimReleased: load("claim_released"),
		promote:       load("promote"),
		release:       load("release"),
		read:          load("read"),
	}
}

// bind puts the table's name into SQL text and drops the comments, which the server need not parse.
func bind(sql string, table tableName) string {
	var lines []string
	for line := range strings.Lines(sql) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(strings.Join(lines, ""), "{table}", table.quoted()))
}
