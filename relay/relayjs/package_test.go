package relayjs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// tsc is where scripts/install-tools.sh puts the TypeScript compiler.
func tsc(t *testing.T) string {
	cache, err := os.UserCacheDir()
	require.NoError(t, err)
	dirs, err := filepath.Glob(filepath.Join(cache, "tilefence", "typescript-*", "package", "lib"))
	require.NoError(t, err)
	if len(dirs) == 0 {
		t.Skip("there is no TypeScript: run make install-tools")
	}
	return dirs[len(dirs)-1]
}

// TestPackage makes the npm package, installs it into another directory without a network, and compiles and runs a
// game in TypeScript against it. The declarations name what the modules export, no less and no more.
func TestPackage(t *testing.T) {
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is not installed")
	}
	lib, dir := tsc(t), t.TempDir()
	run := func(in, name string, args ...string) string {
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir = in
		cmd.Env = append(os.Environ(), "NODE_NO_WARNINGS=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s %v: %s", name, args, out)
		return string(out)
	}
	here, err := os.Getwd()
	require.NoError(t, err)
	run(here, "npm", "pack", "--silent", "--pack-destination", dir)
	manifest := []byte(`{"type":"module","private":true}`)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "package.json"), manifest, 0o600))
	run(dir, "npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "./tilefence-relay-0.1.0.tgz")
	game, err := os.ReadFile("testdata/game.ts")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "game.ts"), game, 0o600))
	run(dir, "node", filepath.Join(lib, "tsc.js"), "--strict", "--target", "es2022", "--module", "nodenext",
		"--moduleResolution", "nodenext", "--lib", "esnext,dom", "game.ts")
	require.JSONEq(t, `{"sent":"tilefence.token.token","seen":["85283473fffffff 0 0","85283473fffffff 0 move"],"cell":3,
		"unknown":true,"frames":1,"silence":"function","wrong":true}`,
		run(dir, "node", "--experimental-websocket", "game.js"))
	installed := filepath.Join(dir, "node_modules", "@tilefence", "relay")
	run(here, "node", "testdata/exports.mjs", installed, filepath.Join(lib, "typescript.js"))
}
