package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Dir is the absolute path of a state directory. It and all in it can be read
// by its owner only. Its files:
//
//	state.json                 ports and where etcd's data is
//	etcd/                      etcd's data, unless state.json says elsewhere
//	pki/                       CA, serving certificate, service account key
//	tokens.csv                 kube-apiserver's --token-auth-file
//	admin.token, user.token, reader.token
//	kubeconfig, user.kubeconfig, reader.kubeconfig
//	etcd.log, kube-apiserver.log
//	lock                       locked while anything runs, see lockDir
//
// and while it runs:
//
//	devcluster.pid, etcd.pid, kube-apiserver.pid
//	control.sock               takes the commands stop and restart-apiserver
//	ready                      what a client needs, see Ready; there while kube-apiserver is ready
type Dir string

const (
	stateFile   = "state.json"
	pkiDir      = "pki"
	lockFile    = "lock"
	controlSock = "control.sock"
	readyFile   = "ready"
)

// openDir returns the existing directory path as a Dir.
func openDir(path string) (Dir, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if !info.IsDir() {
		return "", fmt.Errorf("%s is not a directory", path)
	}
	return Dir(path), nil
}

// file returns the absolute path of a file in d.
func (d Dir) file(name string) string { return filepath.Join(string(d), name) }

// lockWait is how long lockDir waits for the children of a devcluster that
// was killed to be gone as well.
const lockWait = 3 * time.Second

// lockDir locks d until the returned file is closed by this process and all
// children that inherited it. So whoever gets the lock knows that nothing of
// an earlier run is still using the data or the ports.
func lockDir(d Dir) (*os.File, error) {
	f, err := os.OpenFile(d.file(lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(lockWait); ; time.Sleep(20 * time.Millisecond) {
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			break
		}
	}
	f.Close()
	if errors.Is(err, unix.EWOULDBLOCK) {
		pid, _ := d.readPid("devcluster")
		return nil, fmt.Errorf("%s is in use by devcluster with pid %d", d, pid)
	}
	return nil, fmt.Errorf("lock %s: %w", d, err)
}

// writePid writes name.pid.
func (d Dir) writePid(name string, pid int) error {
	return writeFile(d.file(name+".pid"), []byte(strconv.Itoa(pid)+"\n"))
}

// readPid reads name.pid.
func (d Dir) readPid(name string) (int, error) {
	data, err := os.ReadFile(d.file(name + ".pid"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}

// remove removes a file of d; one that is not there is as good.
func (d Dir) remove(name string) { os.Remove(d.file(name)) }

// writeFile replaces path in one step, readable by the owner only: readers see
// all of the old file or all of the new one.
func writeFile(path string, data []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
	return err
}

// writeJSON replaces path in one step with v as indented JSON.
func writeJSON(path string, v any) error {
	data, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return writeFile(path, append(data, '\n'))
}
