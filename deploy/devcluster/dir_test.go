package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestWriteFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	for _, want := range []string{"one", "two"} {
		if err := writeFile(path, []byte(want)); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("got %q, %v, want %q", got, err, want)
		}
	}
	checkPrivate(t, path)
	if entries, err := os.ReadDir(filepath.Dir(path)); err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want the one file", entries, err)
	}
}

func TestLockDir(t *testing.T) {
	d := Dir(t.TempDir())
	lock, err := lockDir(d)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lockDir(d); err == nil {
		t.Error("locked twice")
	}
	lock.Close()
	lock, err = lockDir(d)
	if err != nil {
		t.Fatalf("lock a released directory: %v", err)
	}
	lock.Close()
}

// checkPrivate fails the test if others can read path.
func checkPrivate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if mode := info.Mode().Perm(); mode&0o077 != 0 {
		t.Errorf("%s: got mode %v, want none for others", path, mode)
	}
}
