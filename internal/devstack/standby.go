package devstack

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tilefence/tilefence/internal/wait"
)

// PostgresPair is the stack's PostgreSQL server and a second one, which can follow it and take its place. The second
// runs from the first call of Follow. The methods are not for several goroutines.
type PostgresPair struct {
	stack            *Stack
	backup           string // the program that copies a server
	password         string
	primary, standby *Process
	runs             bool // the second server has a place among the stack's processes
}

// PostgresPair prepares a second server. It may be called once in a stack, which has no certificates.
func (s *Stack) PostgresPair() (*PostgresPair, error) {
	primary, ok := s.Process("postgres")
	if !ok || s.cfg.Certificates != nil {
		return nil, errors.New("devstack: a standby needs a PostgreSQL server without certificates")
	}
	backup, err := postgresProgram("pg_basebackup")
	if err != nil {
		return nil, err
	}
	where, err := url.Parse(s.PostgresURL)
	if err != nil {
		return nil, err
	}
	const name = "postgres-2"
	dir, err := s.dir.sub(name, primary.program.user)
	if err != nil {
		return nil, err
	}
	host := s.host()
	port, err := s.ports.pick(host)
	if err != nil {
		return nil, err
	}
	p := &PostgresPair{stack: s, backup: backup, primary: primary}
	p.password, _ = where.User.Password()
	p.standby = &Process{name: name, addr: hostPort(host, port), program: primary.program, stack: s}
	p.standby.program.dir = dir
	p.standby.program.args = postgresArgs(filepath.Join(dir, "data"), dir, host, port, s.cfg.NoSync)
	address := s.postgresURL(p.standby.addr, p.password)
	p.standby.ready = func(ctx context.Context, _ int) error { return pingPostgres(ctx, address) }
	return p, nil
}

// URL is for clients: they find the server that takes writes.
func (p *PostgresPair) URL() string {
	return p.stack.postgresURL(p.primary.addr+","+p.standby.addr, p.password) + "&target_session_attrs=read-write"
}

// StandbyURL is that of the standby alone.
func (p *PostgresPair) StandbyURL() string { return p.stack.postgresURL(p.standby.addr, p.password) }

// Primary is the server that takes writes.
func (p *PostgresPair) Primary() *Process { return p.primary }

// Follow makes the standby anew, as a copy of the primary, and returns when it streams what that one commits.
func (p *PostgresPair) Follow(ctx context.Context) error {
	p.standby.terminate()
	data := filepath.Join(p.standby.program.dir, "data")
	if err := removeTree(data); err != nil {
		return err
	}
	source := p.stack.postgresURL(p.primary.addr, p.password)
	backup := &Process{name: "pg_basebackup", stack: p.stack, program: p.standby.program}
	backup.program.path, backup.program.orphaned = p.backup, syscall.SIGKILL
	backup.program.args = []string{"--pgdata", data, "--dbname", source, "--write-recovery-conf", "--no-sync",
		"--checkpoint", "fast"}
	if err := backup.finish(ctx); err != nil {
		return err
	}
	if !p.runs {
		p.runs = true
		p.stack.adopt([]*Process{p.standby})
	}
	if err := p.standby.start(ctx); err != nil {
		return err
	}
	return holds(ctx, source, "SELECT count(*) > 0 FROM pg_stat_replication WHERE state = 'streaming'")
}

// Cut ends the replication when the standby has what the primary has committed, and returns when it has replayed what
// it has received. From then on it lacks what the primary commits.
func (p *PostgresPair) Cut(ctx context.Context) error {
	primary, err := pgx.Connect(ctx, p.stack.postgresURL(p.primary.addr, p.password))
	if err != nil {
		return err
	}
	defer func() { _ = primary.Close(ctx) }()
	var end string
	if err := primary.QueryRow(ctx, "SELECT pg_current_wal_flush_lsn()::text").Scan(&end); err != nil {
		return err
	}
	if err := holds(ctx, p.StandbyURL(), "SELECT pg_last_wal_replay_lsn() >= '"+end+"'"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, p.StandbyURL())
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	for _, command := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if _, err := conn.Exec(ctx, command); err != nil {
			return err
		}
	}
	return holds(ctx, p.StandbyURL(), "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver) AND "+
		"pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()")
}

// Promote kills the primary and has the standby take its place, with what it has. The two change their roles.
func (p *PostgresPair) Promote(ctx context.Context) error {
	if err := p.primary.Signal(os.Kill); err != nil {
		return err
	}
	<-p.primary.Exited()
	if err := holds(ctx, p.StandbyURL(), "SELECT pg_promote()"); err != nil {
		return err
	}
	p.primary, p.standby = p.standby, p.primary
	return nil
}

// holds asks a server a question until the answer is yes.
func holds(ctx context.Context, address, question string) error {
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		var yes bool
		if err := conn.QueryRow(ctx, question).Scan(&yes); err != nil || yes {
			return err
		}
		if !wait.For(ctx, pollEvery) {
			return fmt.Errorf("devstack: PostgreSQL does not come to %q: %w", question, context.Cause(ctx))
		}
	}
}
