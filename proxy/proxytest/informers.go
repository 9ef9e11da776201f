package proxytest

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// ClientGoReleases are what the program proxy/e2e/informers is compiled against: the newest, the last in which watch-lists are off unless asked for,
// and an old one that can be asked.
var ClientGoReleases = []string{"v0.37", "v0.34", "v0.31"}

// BuildInformers returns the programs by release; source is where their code is. The go command keeps what it compiled, and with INFORMERS_BIN, a
// directory, what it linked.
func BuildInformers(t testing.TB, source string) map[string]string {
	t.Helper()
	dir := os.Getenv("INFORMERS_BIN")
	if dir == "" {
		dir = t.TempDir()
	}
	programs := make(map[string]string)
	for i, release := range ClientGoReleases {
		modFile := release + ".mod"
		if i == 0 {
			modFile = "go.mod"
		}
		begin := time.Now()
		programs[release] = filepath.Join(dir, "informers-"+release)
		cmd := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-modfile="+modFile, "-o", programs[release], ".")
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("build informers with client-go %s: %v\n%s", release, err, out)
		}
		t.Logf("built informers with client-go %s in %s", release, time.Since(begin).Round(100*time.Millisecond))
	}
	return programs
}
