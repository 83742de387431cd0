package pgfence

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tilefence/tilefence/fence"
	"github.com/tilefence/tilefence/fence/internal/verdict"
)

// Statements returns the statements by the name of their file.
func (a *Authority) Statements() map[string]string {
	return map[string]string{
		"claim_new": a.own.sql.claimNew, "claim_released": a.own.sql.claimReleased,
		"promote": a.own.sql.promote, "release": a.own.sql.release, "read": a.own.sql.read,
		"raise": a.own.sql.raise, "retire": a.own.sql.retire,
	}
}

// Waiting is how many calls gather for a next set.
func (a *Authority) Waiting() int {
	a.own.mints.mu.Lock()
	defer a.own.mints.mu.Unlock()
	n := 0
	for _, queue := range a.own.mints.queues {
		n += len(queue)
	}
	return n
}

// Classify is what the error of a transaction says.
func Classify(err error) string {
	f := classify(err)
	var said []string
	for _, s := range []struct {
		word string
		is   bool
	}{
		{"unknown", f.unknown}, {"again", f.again}, {"refused", f.refused}, {"locked", f.locked},
		{"read-only", f.readOnly},
	} {
		if s.is {
			said = append(said, s.word)
		}
	}
	return strings.Join(said, " ")
}

// SetWaits sets how long transactions wait for a row that is locked, and calls aside. Call it before the authority is
// used.
func (a *Authority) SetWaits(lock, aside time.Duration) {
	a.own.lockWait, a.own.asideWait = lock, aside
}

// SetStatements returns the statements of a set of each kind with their arguments, by the names of their
// files. The first is settings; calls must be on different tiles, in order.
func (a *Authority) SetStatements(claims []fence.Claim) map[string]SetStatement {
	members := make([]*member, len(claims))
	for i := range claims {
		members[i] = &member{Call: verdict.Promoting(&claims[i])}
	}
	named := map[string]SetStatement{}
	for k, names := range map[verdict.Kind][]string{
		verdict.Lookup: {"read_set"}, verdict.ClaimNew: {"claim_new_set", "raise_set"},
		verdict.ClaimReleased: {"claim_released_set"}, verdict.Promote: {"promote_set"},
		verdict.Release: {"release_set"},
	} {
		t := a.own.setOf(k, members, nil)
		named["settings"] = SetStatement{t.settings.sql, t.settings.args}
		for i, s := range append(t.writes, t.read)[:len(names)] {
			named[names[i]] = SetStatement{s.sql, s.args}
		}
	}
	return named
}

// SetStatement is a statement and its arguments.
type SetStatement struct {
	SQL  string
	Args []any
}

// MigrateTo is Migrate in a release whose last migration was version.
func (a *Authority) MigrateTo(ctx context.Context, version int) error {
	migrations, err := loadMigrations(a.own.table, a.own.world)
	if err != nil {
		return err
	}
	return pgx.BeginFunc(ctx, a.own.pool, func(tx pgx.Tx) error { return a.own.apply(ctx, tx, migrations[:version]) })
}

// Tuning are the settings that only tests change.
type Tuning = tuning

// OneLane is the configuration with one transaction at a time.
func (cfg Config) OneLane() *Config {
	cfg.tuning.Lanes = 1
	return &cfg
}

// With is the configuration with such settings.
func (cfg Config) With(t Tuning) *Config {
	cfg.tuning = t
	return &cfg
}
