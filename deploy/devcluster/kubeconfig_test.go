package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteExtraKubeconfig(t *testing.T) {
	d := newFiles(t)
	path := filepath.Join(t.TempDir(), "new", "config")
	for range 2 { // the second time over our own
		if err := writeExtraKubeconfig(path, d); err != nil {
			t.Fatal(err)
		}
		checkPrivate(t, path)
	}

	const foreign = "{apiVersion: v1, kind: Config, clusters: [{name: production, cluster: {server: " +
		"https://example.com}}]}"
	if err := os.WriteFile(path, []byte(foreign), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeExtraKubeconfig(path, d); err == nil {
		t.Error("replaced somebody's kubeconfig")
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != foreign {
		t.Errorf("got %s, %v, want it untouched", got, err)
	}
}

// newFiles returns a Dir with everything that is there before the first start.
func newFiles(t *testing.T) Dir {
	d := Dir(t.TempDir())
	state, err := loadState(d, Options{SecurePort: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := writeFiles(d, state); err != nil {
		t.Fatal(err)
	}
	return d
}
