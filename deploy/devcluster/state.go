package main

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// State is what a later run in the same Dir needs to continue this one and
// cannot read off other files. It is kept in state.json.
type State struct {
	SecurePort   int    `json:"securePort"`
	EtcdPort     int    `json:"etcdPort"`
	EtcdPeerPort int    `json:"etcdPeerPort"`
	EtcdDir      string `json:"etcdDir"` // etcd's data; absolute
}

const memoryDir = "/dev/shm"

// loadState reads what an earlier run in d left, if any, and applies opts.
// Ports that nobody chose are zero.
func loadState(d Dir, opts Options) (State, error) {
	state, err := readState(d)
	if err != nil {
		return State{}, err
	}
	if opts.SecurePort != 0 {
		state.SecurePort = opts.SecurePort
	}
	if opts.EtcdPort != 0 {
		state.EtcdPort = opts.EtcdPort
	}
	inMemory := opts.Memory && !isMemory(string(d))
	switch {
	case state.EtcdDir == "" && inMemory:
		state.EtcdDir = filepath.Join(memoryDir, "devcluster-etcd-"+strings.ToLower(rand.Text()))
	case state.EtcdDir == "":
		state.EtcdDir = d.file(etcdName)
	case inMemory && !isMemory(state.EtcdDir) && exists(state.EtcdDir):
		err = fmt.Errorf("--memory: the data of %s is already at %s", d, state.EtcdDir)
	}
	return state, err
}

// readState returns the zero State where there is none.
func readState(d Dir) (State, error) {
	var state State
	data, err := os.ReadFile(d.file(stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return state, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &state)
	}
	if err != nil {
		return State{}, fmt.Errorf("read %s: %w", d.file(stateFile), err)
	}
	return state, nil
}

// save writes state.json.
func (s State) save(d Dir) error { return writeJSON(d.file(stateFile), s) }

// etcdEndpoint is where etcd serves clients.
func (s State) etcdEndpoint() string { return fmt.Sprintf("http://127.0.0.1:%d", s.EtcdPort) }

// server is where kube-apiserver serves clients.
func (s State) server() string { return fmt.Sprintf("https://127.0.0.1:%d", s.SecurePort) }

// isMemory reports whether path is in a memory-backed file system.
func isMemory(path string) bool {
	var st unix.Statfs_t
	return unix.Statfs(path, &st) == nil && st.Type == unix.TMPFS_MAGIC
}

// exists reports whether there is something at path.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
