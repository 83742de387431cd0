package viewcache_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tilefence/tilefence/internal/devstack/stacktest"
)

// TestMutants puts errors into the source of this package, by an overlay, and wants a test to notice each: views that
// are served without being verified, readers that do not mind the lock, waits and failures without a bound.
func TestMutants(t *testing.T) {
	stacktest.RequireFullTest(t)
	for _, m := range []struct {
		name, file, test string
		edits            []string
	}{
		{"notVerified", "view.go", "TestCache/DamageIsAMiss", []string{
			"case !keyring.Signed(c.keys, b[1:valueTag], signs, b[valueTag:]):", "case false:",
			"err != nil || e.Prev != at {", "err != nil && false {"}},
		{"tagsNotRead", "view.go", "TestCache/WhatHasNoTagIsRefused", []string{
			"case !keyring.Signed(c.keys, b[1:valueTag], signs, b[valueTag:]):", "case false:"}},
		{"labelsNotRead", "view.go", "TestCache/AnothersBytesAreAMiss", []string{
			"of != tile {", "false && of != tile {",
			"m.GetFrom().Fence() != version.Base || m.GetPosition().Fence() != version.At {", "false {",
			"m.GetFrom().Fence() != at || m.GetPosition() != nil {", "false {", "if at != version.At {", "if false {",
			"err != nil || e.Prev != at {", "err != nil {"}},
		{"everyReaderReads", "cache.go", "TestCache/OneRebuildAVersion", []string{
			"case g.Token != 0:", "case g.Token != 0 || true:"}},
		{"deafWaiterNeverLooks", "cache.go", "TestCache/ALostAnnouncementCostsADelay", []string{
			"min(left, w.next)", "max(left, w.next)"}},
		{"valveStaysOpen", "valve.go", "TestCache/AStoreThatHangsCostsABoundedTime", []string{
			"if !v.closed {\n\t\treturn a, true", "if true {\n\t\treturn a, true"}},
		{"anotherHistoryExtended", "rebuild.go", "TestCache/AnotherHistoryIsReadAnew", []string{
			"o.Position != v.Position && o.Position.Seq <= v.Position.Seq {", "false {"}},
	} {
		t.Run(m.name, func(t *testing.T) {
			source, err := os.ReadFile(m.file)
			require.NoError(t, err)
			changed := strings.NewReplacer(m.edits...).Replace(string(source))
			for i := 0; i < len(m.edits); i += 2 {
				require.Contains(t, string(source), m.edits[i], "the edit fits the source")
			}
			dir := t.TempDir()
			require.NoError(t, os.WriteFile(filepath.Join(dir, m.file), []byte(changed), 0o600))
			here, err := filepath.Abs(m.file)
			require.NoError(t, err)
			overlay, err := json.Marshal(map[string]any{
				"Replace": map[string]string{here: filepath.Join(dir, m.file)}})
			require.NoError(t, err)
			list := filepath.Join(dir, "overlay.json")
			require.NoError(t, os.WriteFile(list, overlay, 0o600))
			cmd := exec.Command("go", "test", "-count=1", "-vet=off", "-overlay", list, "-run", "^"+
				strings.ReplaceAll(m.test, "/", "$/^")+"$", ".")
			cmd.Env = append(os.Environ(), "TILEFENCE_PATIENCE=1") // it is expected to fail
			out, err := cmd.CombinedOutput()
			require.Error(t, err, "not noticed: %s", out)
			require.Contains(t, string(out), "--- FAIL: "+m.test)
		})
	}
}
