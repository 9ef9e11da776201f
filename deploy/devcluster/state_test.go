package main

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestState: a later run continues at the same place, and flags override its ports.
func TestState(t *testing.T) {
	d := Dir(t.TempDir())
	if isMemory(string(d)) {
		t.Skip("temporary files are in memory")
	}
	state, err := loadState(d, Options{Memory: true})
	if err != nil || !strings.HasPrefix(state.EtcdDir, memoryDir+"/") {
		t.Fatalf("new state: got %+v, %v, want data in %s", state, err, memoryDir)
	}
	state.SecurePort, state.EtcdPort, state.EtcdPeerPort = 1, 2, 3
	if err := state.save(d); err != nil {
		t.Fatal(err)
	}
	state.SecurePort = 4
	if got, err := loadState(d, Options{SecurePort: 4}); err != nil || got != state {
		t.Errorf("second run: got %+v, %v, want %+v", got, err, state)
	}
	state.EtcdDir = d.file("etcd")
	if err := errors.Join(os.Mkdir(state.EtcdDir, 0o700), state.save(d)); err != nil {
		t.Fatal(err)
	}
	if got, err := loadState(d, Options{Memory: true}); err == nil {
		t.Errorf("data on disk, --memory: got %+v, want an error", got)
	}
}
