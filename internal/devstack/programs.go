package devstack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// DynoxideVersion is the version of the DynamoDB-compatible server that the install script installs.
const DynoxideVersion = "1.2.1"

// ErrMissingProgram is the class of [*MissingProgramError].
var ErrMissingProgram = errors.New("devstack: a program is not installed")

// MissingProgramError says which program (or operating-system user) a stack needs and did not find.
type MissingProgramError struct {
	Program string
	Looked  []string // the places that were searched
	Install string   // how to install it
}

func (e *MissingProgramError) Error() string {
	return fmt.Sprintf("devstack: %s is not installed (looked in %s): %s",
		e.Program, strings.Join(e.Looked, ", "), e.Install)
}

// How the programs are installed. `make install-tools`, in a clone of the repository, installs them all.
const (
	installRedis    = "on Debian, apt-get install redis-server, or valkey-server"
	installPostgres = "on Debian, apt-get install postgresql"
	installDynoxide = "scripts/install-tools.sh of the repository installs it; or unpack npm's @dynoxide/linux-x64@" +
		DynoxideVersion + " and put it into PATH"
)

// Installed returns the parts whose programs are installed, and for the others what is missing: a
// [*MissingProgramError] each.
func Installed() (parts []Part, missing []error) {
	for _, part := range AllParts() {
		if _, err := findPrograms([]Part{part}); err != nil {
			missing = append(missing, fmt.Errorf("%s: %w", part, err))
			continue
		}
		parts = append(parts, part)
	}
	return parts, missing
}

// Is makes errors.Is(err, ErrMissingProgram) true.
func (e *MissingProgramError) Is(target error) bool { return target == ErrMissingProgram }

// programs are the paths of what the configured parts need, and the user PostgreSQL runs as.
type programs struct {
	redis        string
	initdb       string
	postgres     string
	postgresUser *serverUser
	dynoxide     string
}

// findPrograms looks everything up before anything is started, so that all that is missing is reported
// together.
func findPrograms(parts []Part) (programs, error) {
	var found programs
	if !supported {
		return found, fmt.Errorf("devstack: only Linux is supported: %w", errors.ErrUnsupported)
	}
	var missing []error
	note := func(path *string, name string, find func(string) (string, error)) {
		var err error
		if *path, err = find(name); err != nil {
			missing = append(missing, err)
		}
	}
	if slices.Contains(parts, Coordination) || slices.Contains(parts, Fanout) || slices.Contains(parts, Views) {
		note(&found.redis, "redis-server", redisProgram)
	}
	if slices.Contains(parts, Postgres) {
		note(&found.initdb, "initdb", postgresProgram)
		note(&found.postgres, "postgres", postgresProgram)
		var err error
		if found.postgresUser, err = unprivilegedUser("postgres"); err != nil {
			missing = append(missing, &MissingProgramError{
				Program: "the user postgres, under which PostgreSQL runs when root starts it,",
				Looked:  []string{"the user database"}, Install: installPostgres,
			})
		}
	}
	if slices.Contains(parts, DynamoDB) {
		note(&found.dynoxide, "dynoxide", dynoxideProgram)
	}
	return found, errors.Join(missing...)
}

func inPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &MissingProgramError{Program: name, Looked: []string{"PATH"}, Install: installRedis}
	}
	return filepath.Abs(path)
}

// redisProgram is the engine that the environment names, or else Redis, or Valkey where that alone is installed.
func redisProgram(name string) (string, error) {
	if engine := os.Getenv(EnvEngine); engine != "" {
		return inPath(engine)
	}
	path, err := inPath(name)
	if err != nil {
		if valkey, other := inPath("valkey-server"); other == nil {
			return valkey, nil
		}
	}
	return path, err
}

// postgresProgram also looks where Debian puts PostgreSQL's server programs, which it keeps out of PATH.
func postgresProgram(name string) (string, error) {
	if path, err := inPath(name); err == nil {
		return path, nil
	}
	const debian = "/usr/lib/postgresql/*/bin"
	versions, err := filepath.Glob(filepath.Join(debian, name))
	if err != nil || len(versions) == 0 {
		return "", &MissingProgramError{Program: name + " (PostgreSQL)", Looked: []string{"PATH", debian},
			Install: installPostgres}
	}
	return newest(versions), nil
}

// newest returns the path whose PostgreSQL version is highest; a shorter number is a lower one.
func newest(paths []string) string {
	return slices.MaxFunc(paths, func(a, b string) int {
		if len(a) != len(b) {
			return len(a) - len(b)
		}
		return strings.Compare(a, b)
	})
}

func dynoxideProgram(name string) (string, error) {
	const override = "TILEFENCE_DYNOXIDE"
	if path := os.Getenv(override); path != "" {
		if !executable(path) {
			return "", &MissingProgramError{Program: name, Looked: []string{"$" + override + "=" + path},
				Install: installDynoxide}
		}
		return filepath.Abs(path)
	}
	if path, err := inPath(name); err == nil {
		return path, nil
	}
	looked := []string{"$" + override, "PATH"}
	if cache, err := os.UserCacheDir(); err == nil {
		path := filepath.Join(cache, "tilefence", "dynoxide-"+DynoxideVersion, "package", "dynoxide")
		if executable(path) {
			return path, nil
		}
		looked = append(looked, path)
	}
	return "", &MissingProgramError{Program: name, Looked: looked, Install: installDynoxide}
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
