package devstack

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	postgresSuperuser = "tilefence"
	// A socket's path has room for 107 bytes, of which PostgreSQL's own name takes some 20.
	longestSocketDir = 80
)

// startPostgres returns the URL and the host:port of a new server.
func (s *Stack) startPostgres(ctx context.Context, found programs) (address, where string, err error) {
	dir, err := s.dir.sub("postgres", found.postgresUser)
	if err != nil {
		return "", "", err
	}
	password := rand.Text()
	base := program{
		path: found.postgres,
		dir:  dir,
		user: found.postgresUser,
		// The "immediate" shutdown: children end and shared memory is given back, but the data, which
		// is about to be deleted, is not first made consistent.
		stop:     syscall.SIGQUIT,
		orphaned: syscall.SIGQUIT,
	}
	data := filepath.Join(dir, "data")
	if err := s.initdb(ctx, base, found.initdb, data, password); err != nil {
		return "", "", err
	}
	if err := s.admitLoopback(data); err != nil {
		return "", "", err
	}
	var secure []string
	if s.cfg.Certificates != nil {
		if secure, err = s.postgresCertificates(dir, found.postgresUser); err != nil {
			return "", "", err
		}
	}
	processes, err := s.startWithPorts(ctx, func() ([]*Process, error) {
		host := s.host()
		port, err := s.ports.pick(host)
		if err != nil {
			return nil, err
		}
		prog := base
		prog.args = append(postgresArgs(data, dir, host, port, s.cfg.NoSync), secure...)
		addr := hostPort(host, port)
		return []*Process{{
			name: "postgres", addr: addr, program: prog, stack: s,
			ready: func(ctx context.Context, _ int) error { return pingPostgres(ctx, s.postgresURL(addr, password)) },
		}}, nil
	})
	if err != nil {
		return "", "", err
	}
	return s.postgresURL(processes[0].addr, password), processes[0].addr, nil
}

func (s *Stack) initdb(ctx context.Context, base program, initdb, data, password string) error {
	passwordFile := filepath.Join(base.dir, "password")
	if err := os.WriteFile(passwordFile, []byte(password), 0o600); err != nil {
		return err
	}
	if base.user != nil {
		if err := os.Chown(passwordFile, base.user.uid, base.user.gid); err != nil {
			return err
		}
	}
	base.orphaned = syscall.SIGKILL
	p := &Process{name: "initdb", stack: s, program: base}
	p.program.path = initdb
	p.program.args = []string{
		"--pgdata", data, "--username", postgresSuperuser, "--pwfile", passwordFile,
		"--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C", "--no-sync", "--no-instructions",
	}
	if err := p.finish(ctx); err != nil {
		if base.user != nil && errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w (the user postgres cannot enter a parent directory of %s; set TMPDIR to another)",
				err, base.dir)
		}
		return err
	}
	return os.Remove(passwordFile)
}

// admitLoopback lets clients connect from every loopback address, of which initdb names only one, and from the subnet
// of Config.Host. With certificates, no line
// admits a client that does not encrypt.
func (s *Stack) admitLoopback(data string) error {
	name := filepath.Join(data, "pg_hba.conf")
	if s.cfg.Certificates != nil { // the file stays its owner's
		return os.WriteFile(name, []byte("hostssl all all 127.0.0.0/8 scram-sha-256\n"), 0o600)
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	line := "host all all 127.0.0.0/8 scram-sha-256\n"
	if s.cfg.Host != defaultHost {
		line += "host all all samenet scram-sha-256\n"
	}
	_, err = f.WriteString(line)
	return errors.Join(err, f.Close())
}

func postgresArgs(data, socketDir, host string, port int, noSync bool) []string {
	if len(socketDir) > longestSocketDir {
		socketDir = "" // no socket; the URL uses TCP anyway
	}
	args, sync := []string{"-D", data}, "on" // measured figures for durable writes must mean something
	if noSync {
		sync = "off"
	}
	for _, setting := range [][2]string{
		{"listen_addresses", host},
		{"port", strconv.Itoa(port)},
		{"unix_socket_directories", socketDir},
		{"fsync", sync},
		{"synchronous_commit", "on"},
		{"max_connections", "300"}, // several test packages at once, each with pools of its own
		{"shared_buffers", "64MB"},
		{"dynamic_shared_memory_type", "mmap"}, // in the data directory: nothing is left in /dev/shm
		{"timezone", "UTC"},
		{"log_timezone", "UTC"},
	} {
		args = append(args, "-c", setting[0]+"="+setting[1])
	}
	return args
}

func (s *Stack) postgresURL(addr, password string) string {
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(postgresSuperuser, password),
		Host:     addr,
		Path:     "/postgres",
		RawQuery: "sslmode=disable",
	}
	if s.cfg.Certificates != nil {
		u.RawQuery = url.Values{"sslmode": {"verify-full"}, "sslrootcert": {s.files.Authority}}.Encode()
	}
	return u.String()
}

// postgresCertificates are the arguments for TLS. The files belong to the server's user, or it would refuse them.
func (s *Stack) postgresCertificates(dir string, owner *serverUser) ([]string, error) {
	f, err := s.cfg.Certificates.Write(dir)
	if err != nil {
		return nil, err
	}
	if owner != nil {
		for _, name := range []string{f.Certificate, f.Key, f.Authority} {
			if err := os.Chown(name, owner.uid, owner.gid); err != nil {
				return nil, err
			}
		}
	}
	return []string{"-c", "ssl=on", "-c", "ssl_cert_file=" + f.Certificate, "-c", "ssl_key_file=" + f.Key,
		"-c", "ssl_min_protocol_version=TLSv1.3"}, nil
}

// pingPostgres needs no check that the answer comes from the right server: no other one has the password.
func pingPostgres(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return conn.Ping(ctx)
}
